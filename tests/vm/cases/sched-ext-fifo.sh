# what: a real-time task that takes the CPU does not keep main waiting, though throttled tasks wait: from 7.0 on the kernel's server runs main each second; before, the scheduler leaves in time, and the fair class has such a server
# modes: precise
# tier: long 7.3
# seconds: 100
group side capped main
sched_ext_on --json --gate 'cgroup:/side class=side headroom=20%' --gate 'cgroup:/capped cap_hard=200‰'
start side vmtool burn
side=$STARTED
start capped vmtool burn
capped=$STARTED
inside main vmtool wake 10 100000 1000 >/tmp/wake &
wake=$!
sleep 1
vmtool realtime 1 vmtool burn 8
wait $wake
cat /tmp/wake
longest=$(sed -n 's/.* max_us=\([0-9]*\).*/\1/p' /tmp/wake)
measure longest_wait_of_main "$longest" us
if ls /sys/kernel/debug/sched/ext_server >/dev/null 2>&1; then
	within "main's longest wait, in us" "$longest" 0 1100000
	sched_ext_is_on
else
	within "main's longest wait, in us" "$longest" 0 5500000
	same "the state of sched_ext" "$(sched_ext_state)" disabled
	wait $EXT && fail "the scheduler does not say that it left"
	grep -a -m 1 'real-time' /tmp/sched_ext || fail "it does not say why: $(grep -a -v '^{' /tmp/sched_ext | tail -n 3)"
fi
finish $side $capped
