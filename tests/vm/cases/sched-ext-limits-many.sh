# what: 1,000 limited groups, 200 of them with a hog, and a crowd in one with the least quota of all: each is held to its quota, nothing is ejected
# modes: smp
# seconds: 240
# tier: long
# The hogs are threads of one process in threaded groups, so that they need little memory.
group many crowd
echo +cpu >$ROOT/many/cgroup.subtree_control
(cd $ROOT/many && seq 1000 | sed s/^/g/ | xargs mkdir)
for i in $(seq 1000); do
	echo threaded >$ROOT/many/g$i/cgroup.type
done
sched_ext_on --json
inside many vmtool threads 200 &
shell=$!
inside crowd vmtool threads 60 &
all_begun() { [ "$(wc -l <$ROOT/many/cgroup.threads)" -ge 200 ]; }
until_true 60 all_begun || fail "only $(wc -l <$ROOT/many/cgroup.threads) hogs have begun"
hogs=$(cat $ROOT/many/cgroup.procs)
i=0
for thread in $(ls /proc/$hogs/task | tail -n 200); do
	i=$((i + 1))
	echo $thread >$ROOT/many/g$i/cgroup.threads
done
for i in $(seq 1000); do
	echo "1000 1000000" >$ROOT/many/g$i/cpu.max
done
# Of 60 tasks with 1 ms a second in all, the last would wait longer than the kernel's watchdog does.
echo "1000 1000000" >$ROOT/crowd/cpu.max
sleep 5
see vmtool watch 45 many crowd
sched_ext_is_on
# Of 2 CPUs: 200 times 1 ms a second are a tenth of the machine. The emulator of two CPUs is often
# ms late in stopping a task, which quotas pay back and least runs do not: exact figures are those
# of sched-ext-min-runtime and sched-ext-quota.
measure hogs_in_200_of_1000 "$(of many)" %
within "200 hogs with 1 ms in 1 s each" "$(of many)" 7 14
measure crowd_of_60 "$(of crowd)" %
within "60 tasks with 1 ms in 1 s, least runs included" "$(of crowd)" 0.02 2

# They are killed while they are parked, and their groups go.
kill -KILL $hogs
gone_hogs() { ! [ -d /proc/$hogs/task ] || [ "$(ls /proc/$hogs/task | wc -l)" -le 1 ]; }
until_true 20 gone_hogs || fail "killed hogs are still there: $(ls /proc/$hogs/task | wc -l)"
wait $shell || true
(cd $ROOT/many && seq 1000 | sed s/^/g/ | xargs rmdir)
sleep 2
measure no_context "$(json_last no_context)" queueings
same "quotas refused" "$(json_last limits_refused)" 0
sched_ext_is_on
