# what: real-time tasks that take two of three CPUs do not keep a task waiting that may run on these two only: from 7.0 on the kernel's server runs it each second; before, the scheduler leaves
# modes: wide
# tier: long
# seconds: 120
group main

# left WHY: the scheduler has ended by itself, and says so.
left() {
	wait $EXT && fail "the scheduler does not say that it left"
	grep -a -m 1 "$1" /tmp/sched_ext || fail "it does not say why: $(grep -a -v '^{' /tmp/sched_ext | tail -n 3)"
}
cpus 4 8
sched_ext_on --json
inside main taskset 11 vmtool wake 8 100000 1000 >/tmp/wake &
wake=$!
sleep 0.5
# CPU 0 is one of them: the fair class has its server on CPUs that were online at boot.
taskset 10 vmtool realtime 1 vmtool burn 7 &
other=$!
taskset 1 vmtool realtime 1 vmtool burn 7
wait $wake $other
cat /tmp/wake
longest=$(sed -n 's/.* max_us=\([0-9]*\).*/\1/p' /tmp/wake)
measure longest_wait "$longest" us
if ls /sys/kernel/debug/sched/ext_server >/dev/null 2>&1; then
	within "the longest wait of the confined task, in us" "$longest" 0 1100000
	# CPU 4 has no server: if one of its kernel threads waits as well, the scheduler leaves for that.
	if [ "$(sched_ext_state)" = enabled ]; then
		sched_ext_off
	else
		left 'real-time tasks withhold CPU 4 '
	fi
else
	# 3 s of waiting until it counts, polls of 0.5 s, the end of the scheduler, and up to 1 s until the
	# fair class's server runs it.
	within "the longest wait of the confined task, in us" "$longest" 0 6000000
	same "the state of sched_ext" "$(sched_ext_state)" disabled
	left 'real-time tasks withhold'
fi
