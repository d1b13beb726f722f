# what: a CPU goes while tasks wait that may run on no other: they go on elsewhere, nothing hangs, and they come back under the scheduler, whose timers and kicks work there as before
# modes: smp
# tier: long
# seconds: 200
sched_ext_on
group a b
# More than enough for the other CPU: the one that goes sees them wait as it idles for the last
# time.
start b vmtool threads 4
# They are parked and let go by timers that their CPU sets.
echo "60000 100000" >$ROOT/a/cpu.max
for n in 1 2 3 4; do
	into a taskset 2 vmtool count /tmp/turns$n &
done
turns() { od -A n -t u8 -N 8 /tmp/turns$1 | tr -d ' '; }
began() { [ "$(turns $1)" != "$2" ]; }
for round in 1 2; do
	for n in 1 2 3 4; do until_true 60 test -s /tmp/turns$n || fail "hog $n has not begun"; done
	echo 0 >/sys/devices/system/cpu/cpu1/online
	sched_ext_is_on
	for n in 1 2 3 4; do
		was=$(turns $n)
		until_true 60 began $n $was || fail "hog $n does not get on"
	done
	echo 1 >/sys/devices/system/cpu/cpu1/online
	for task in $(cat $ROOT/a/cgroup.procs); do taskset -p 2 $task >/dev/null; done
	sleep 1
done
sched_ext_is_on
finish $(cat $ROOT/a/cgroup.procs $ROOT/b/cgroup.procs)
echo "max 100000" >$ROOT/a/cpu.max

# gets_on SECONDS WHEN: the hog does.
gets_on() {
	_before=$(usage a)
	sleep $1
	[ "$(usage a)" -gt "$_before" ] || fail "the hog does not run $2"
}

# One that is pinned to it beside one that is not, and nobody else.
start a vmtool threads 2
hog=$STARTED
taskset -p 2 $hog >/dev/null
for round in 1 2 3; do
	echo 0 >/sys/devices/system/cpu/cpu1/online
	sleep 0.5
	sched_ext_is_on
	gets_on 0.5 "while its CPU is away"
	echo 1 >/sys/devices/system/cpu/cpu1/online
	sleep 0.5
done
gets_on 1 "after its CPU came back"
finish $hog
sched_ext_off
