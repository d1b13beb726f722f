# what: real-time tasks that take a CPU do not keep a task waiting that may run on this one and an offline one only: from 7.0 on the kernel's server runs it each second; before, the scheduler leaves
# modes: wide
# kernels: 6.18 7.3
# tier: long
# needs: tidegate
# seconds: 100
group main
cpus 4
ext_on --json
measure loaded_at "$(uptime)" s
inside main taskset 50 vmtool wake 9 100000 1000 >/tmp/wake &
wake=$!
sleep 0.5
taskset 10 vmtool realtime 1 vmtool burn 8
wait $wake
cat /tmp/wake
longest=$(sed -n 's/.* max_us=\([0-9]*\).*/\1/p' /tmp/wake)
measure longest_wait "$longest" us
if ls /sys/kernel/debug/sched/ext_server >/dev/null 2>&1; then
	within "the longest wait of the confined task, in us" "$longest" 0 1100000
	ext_is_on
	ext_off
else
	# 3 s of waiting until it counts, polls of 0.5 s, the end of the scheduler, and up to 1 s until the fair class's server runs it.
	within "the longest wait of the confined task, in us" "$longest" 0 6500000
	same "the state of sched_ext" "$(ext_state)" disabled
	wait $EXT && fail "the scheduler does not say that it left"
	grep -a -m 1 'real-time' /tmp/ext || fail "it does not say why: $(grep -a -v '^{' /tmp/ext | tail -n 3)"
fi
