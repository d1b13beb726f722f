# what: a process is confined in place: its threads move to a threaded child, its memory stays where it was
# modes: precise smp
# kernels: 6.18 7.3
# tier: long 7.3
# seconds: 20
group service
inside service vmtool threads 3 &
until_true 5 grep -q . $ROOT/service/cgroup.procs || fail "the process did not start"
pid=$(cat $ROOT/service/cgroup.procs)
until_true 5 sh -c "[ \$(ls /proc/$pid/task | wc -l) = 3 ]" || fail "it has not three threads"
mkdir $ROOT/service/gate
echo threaded >$ROOT/service/gate/cgroup.type
same "type of the parent" "$(cat $ROOT/service/cgroup.type)" "domain threaded"
echo "+cpu" >$ROOT/service/cgroup.subtree_control
for thread in /proc/$pid/task/*; do echo "${thread##*/}" >$ROOT/service/gate/cgroup.threads; done
same "threads in the gate" "$(wc -l <$ROOT/service/gate/cgroup.threads)" 3
same "home of the process" "$(cat $ROOT/service/cgroup.procs)" "$pid"
echo "20000 100000" >$ROOT/service/gate/cpu.max
sleep 1
SEEN=$(vmtool watch 2 service)
measure threads_at_20_of_100_ms "$(of service)" %
[ "$MODE" = smp ] || within "use of the confined process" "$(of service)" 19 22
