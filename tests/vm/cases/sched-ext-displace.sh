# what: whoever wakes and displaces a task on another CPU runs at once, and not when that one's slice or the tick is over
# modes: wide
# tier: long
# seconds: 120
group main side
cpus 2 4 6
for n in 1 2 3 4 5 6 7 8; do into side vmtool burn & done
sched_ext_on --gate 'cgroup:/main class=main headroom=30%' --gate 'cgroup:/side class=side'
sleep 1
# Eight tasks of main on four CPUs, 40 % of the machine in pieces of 1 ms; a tick is 4 ms.
see inside main vmtool serve 8 20 1000 3
measure p99 "$(of p99_us)" us
measure mean "$(of mean_us)" us
within "p99 of main's wakeups beside side work on all CPUs, us" "$(of p99_us)" 0 1000
sched_ext_off
