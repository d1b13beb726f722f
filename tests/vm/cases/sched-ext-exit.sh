# what: a task that exits under a cap, alone on its CPU, goes on: the kernel queues it without asking us, when the CPU has already decided to idle
# modes: precise
# tier: long
# seconds: 60
group hard side
sched_ext_on --gate 'cgroup:/hard cap_hard=50‰' --gate 'cgroup:/side class=side headroom=20%'
sleep 2
for where in hard side; do
	see vmtool exit 100 5 $ROOT/$where
	measure longest_exit_$where "$(of longest_ms)" ms
	within "the longest exit in $where" "$(of longest_ms)" 0 100
done
sched_ext_off
