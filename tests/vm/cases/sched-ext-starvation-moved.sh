# what: a task of next to no weight runs after 10 s though it is reniced and moved between groups all the while
# modes: precise
# tier: long
# seconds: 60
group heavy light light/all light/a light/b
echo "+cpu" >$ROOT/light/cgroup.subtree_control
echo 1 >$ROOT/light/cpu.weight
echo 10000 >$ROOT/light/all/cpu.weight
for name in a b; do echo 1 >$ROOT/light/$name/cpu.weight; done
sched_ext_on --json
start heavy vmtool burn
start light/all vmtool burn
# Once it is past all that it does in the kernel, whose readers of RCU do not wait. A slice of 1.4
# ms at a 65536th of the CPU:
# in turn every 90 s.
start heavy vmtool burn
sleep 1
echo "$STARTED" >$ROOT/light/a/cgroup.procs
renice -n 19 -p "$STARTED" >/dev/null
sleep 1
before=$(vmtool cpu $STARTED)
for round in 1 2 3 4 5 6 7 8 9 10 11 12 13; do
	case $((round % 2)) in
	0) echo "$STARTED" >$ROOT/light/a/cgroup.procs ;;
	1) echo "$STARTED" >$ROOT/light/b/cgroup.procs ;;
	esac
	renice -n $((18 + round % 2)) -p "$STARTED" >/dev/null
	sleep 1
done
ran=$(($(vmtool cpu $STARTED) - before))
sched_ext_is_on
measure min_runs "$(json_last min_runs)" runs
measure ran $((ran / 1000)) us
# The kernel's watchdog goes on over what is done to it, and would end the scheduler after 30 s.
[ $ran -gt 0 ] || fail "it has not run for 13 s"
[ "$(json_last min_runs)" -gt 0 ] || fail "it ran, and had no least run"
