# what: a CPU goes while tasks wait that may run on no other: they go on elsewhere, nothing hangs, and they come back under the scheduler
# modes: smp
# kernels: 6.18
# tier: long
# needs: tidegate
# seconds: 200
ext_on
group a
for n in 1 2 3 4; do
	into a taskset 2 vmtool count /tmp/turns$n &
done
turns() { od -A n -t u8 -N 8 /tmp/turns$1 | tr -d ' '; }
began() { [ "$(turns $1)" != "$2" ]; }
for round in 1 2; do
	for n in 1 2 3 4; do until_true 60 test -s /tmp/turns$n || fail "hog $n has not begun"; done
	echo 0 >/sys/devices/system/cpu/cpu1/online
	ext_is_on
	for n in 1 2 3 4; do
		was=$(turns $n)
		until_true 60 began $n $was || fail "hog $n does not get on"
	done
	echo 1 >/sys/devices/system/cpu/cpu1/online
	for task in $(cat $ROOT/a/cgroup.procs); do taskset -p 2 $task >/dev/null; done
	sleep 1
done
ext_is_on
ext_off
