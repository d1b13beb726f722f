# what: why there is no side mode: sched_ext tasks that wait make the kernel's own scheduler queue main beside idle CPUs, confined or not
# modes: wide
# kernels: 6.18 7.3
# needs: tidegate
# tier: long
# seconds: 600
# The decision in docs/decisions/sched-ext-opt-in.md rests on this: where it fails, a kernel has changed, and it is to be made anew.
MANY=4
echo "+cpu +cpuset" >$ROOT/cgroup.subtree_control
group main
group side

# arm NAME: how main's tasks wait, two for each CPU that together ask for 40 % of the machine, in pieces of 1 ms.
arm() {
	sleep 0.7
	vmtool watch 3 main >/tmp/idle &
	_watch=$!
	into main vmtool serve $((2 * MANY)) 20 1000 3 >/tmp/serve &
	wait $!
	wait $_watch
	SEEN="$(cat /tmp/idle) $(cat /tmp/serve)"
	echo "$1 $SEEN"
	for _what in idle stacked; do measure "$1_$_what" "$(of $_what)" %; done
	for _what in mean_us p99_us; do measure "$1_$_what" "$(of $_what)" us; done
	eval "$1=$(of stacked)"
}

# flood NAME: what main has when it wants all.
flood() {
	into main vmtool threads $MANY &
	_flood=$!
	sleep 1
	SEEN=$(vmtool watch 5 main)
	finish $_flood
	measure "$1" "$(of main)" %
	eval "$1=$(of main)"
}

cpus 2 4 6
for n in $(seq $((2 * MANY))); do into side vmtool as sched_ext vmtool burn & done
echo 1 >$ROOT/side/cgroup.freeze
arm none
echo 0,2,4 >$ROOT/main/cpuset.cpus
arm none_on_three
echo 0,2,4,6 >$ROOT/main/cpuset.cpus
echo 0 >$ROOT/side/cgroup.freeze
# Side work may use 30 of the 100 % that main and the idle that is asked leave.
echo 1 >$ROOT/side/cpu.idle
echo "$((MANY * 3000)) 10000" >$ROOT/side/cpu.max
arm cgroup
echo 6 >$ROOT/side/cpuset.cpus
arm cgroup_on_one
echo max >$ROOT/side/cpu.max
echo 0 >$ROOT/side/cpu.idle

sched_ext_on --partial --gate 'cgroup:/main class=main headroom=30%' --gate 'cgroup:/side class=side'
arm partial_on_one
flood main_floods_partial_on_one
echo 0,2,4,6 >$ROOT/side/cpuset.cpus
arm partial
sched_ext_is_on
sched_ext_off

sched_ext_on --gate 'cgroup:/main class=main headroom=30%' --gate 'cgroup:/side class=side'
arm full
flood main_floods_full
sched_ext_is_on
sched_ext_off

within "wakeups beside an idle CPU, no side work" "$none" 0 4
within "the same in partial mode" "$partial" 25 100
within "the same with side work confined to a CPU" "$partial_on_one" 5 25
within "main's part of the machine beside a confined floor" "$main_floods_partial_on_one" 70 80
within "main's part of the machine in full mode" "$main_floods_full" 97 100
