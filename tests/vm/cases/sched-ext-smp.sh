# what: sched_ext keeps every task through fork storms, moves, affinity changes, stops, and cgroups that come and go; hotplug: sched-ext-unplug
# modes: smp
# kernels: 6.18 7.3
# tier: long
# needs: tidegate
# seconds: 400
sched_ext_on
group a
group b

# Affinity, stops and moves, of two hogs and a sleeper.
start a vmtool threads 2
hog=$STARTED
start b vmtool wake 60 2000 100 >/dev/null
sleeper=$STARTED
disturb $hog $sleeper

# Groups that come and go with tasks in them, and a storm of forks.
for round in $(seq 20); do
	mkdir $ROOT/a$round
	inside a$round vmtool build 4 4 >/dev/null &
	last=$!
done
inside b vmtool hackbench 2 5 >/dev/null
inside b vmtool build 8 100 >/dev/null
wait $last
sleep 1
for round in $(seq 20); do
	until_true 20 rmdir $ROOT/a$round 2>/dev/null || fail "group a$round stays: $(cat $ROOT/a$round/cgroup.procs)"
done
sched_ext_is_on

# The real-time class takes the CPUs for a while.
vmtool fifo 2 &
rt=$!
sleep 0.5
kill $rt
wait $rt || true
sched_ext_is_on

vmtool build 4 20
sched_ext_is_on
finish $hog $sleeper
sched_ext_off
cat /tmp/sched_ext
vmtool build 4 20
