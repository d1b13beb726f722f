# what: what each lever alone does for bursts of 6 ms beside side work of the idle class, and what short slices cost it
# modes: wide
# tier: long
# seconds: 900
# The figures of docs/decisions/turns.md; nothing is asserted but that every arm runs.
group main idle plain
echo 1 >$ROOT/idle/cpu.idle
mount -t debugfs none /sys/kernel/debug 2>/dev/null || :
FEATURES=/sys/kernel/debug/sched/features

# lever NAME MAIN SIDE...: MAIN are the words before main's command, SIDE those that start side
# work.
lever() {
	_name=$1
	_main=$2
	shift 2
	for side in hogs fresh; do
		side_work $side "$@"
		# shellcheck disable=SC2086 # a list of words
		SEEN=$(inside main $_main vmtool wake 4 24000 6000)
		echo "$_name, $side: late $(of done_late) of $(of wakes), p50 $(of done_p50_us), p99 $(of done_p99_us)"
		measure "${_name}_${side}_late" "$(of done_late)" bursts
		measure "${_name}_${side}_p99" "$(of done_p99_us)" us
		side_work_over
	done
}

# work_done WORDS...: what two tasks a CPU get done in 5 s of the idle class, started with these
# words.
work_done() {
	pids=
	for n in 1 2 3 4; do
		into idle "$@" vmtool count /tmp/count$n &
		pids="$pids $!"
	done
	sleep 1
	_before=$(counted)
	sleep 5
	echo $(($(counted) - _before))
	# shellcheck disable=SC2086 # a list of words
	finish $pids
}
counted() {
	for n in 1 2 3 4; do od -An -t u8 -N 8 /tmp/count$n; done | awk '{ sum += $1 } END { printf "%d", sum }'
}

cpus 4
SEEN=$(inside main vmtool wake 4 24000 6000)
measure alone_p99 "$(of done_p99_us)" us
lever plain "" into plain
lever nice_19 "" into plain vmtool niced 19
lever cpu_idle "" into idle
lever and_sched_idle "" into idle vmtool idle
lever side_short "" into idle vmtool sliced 100000
lever side_long "" into idle vmtool sliced 100000000
lever main_short "vmtool sliced 100000" into idle
lever main_long "vmtool sliced 100000000" into idle
echo 10000 >$ROOT/main/cpu.weight
lever main_weight "" into idle
echo 100 >$ROOT/main/cpu.weight
if [ -e $FEATURES ]; then
	grep -q NO_HRTICK $FEATURES && _was=NO_HRTICK _other=HRTICK || _was=HRTICK _other=NO_HRTICK
	echo $_other >$FEATURES
	lever $_other "" into idle
	lever ${_other}_side_short "" into idle vmtool sliced 100000
	echo $_was >$FEATURES
fi
lever tidegate "" tidegate run -q --side --
measure work "$(work_done)" turns
measure work_in_short_slices "$(work_done vmtool sliced 100000)" turns
