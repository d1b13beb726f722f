# what: cpu.max under sched_ext on two, four and eight CPUs: a quota, nested ones that together are more than their parent's, and a burst
# modes: wide
# tier: long
# seconds: 600
for name in plain nest nest/a nest/b burst; do
	group $name
	[ $name != nest ] || echo +cpu >$ROOT/nest/cgroup.subtree_control
done
# The kernel tells the caches of CPUs on line alone, and the scheduler reads them once.
cpus 2 4 6 8 10 12 14
sched_ext_on --json
echo "50000 100000" >$ROOT/plain/cpu.max
echo "60000 100000" >$ROOT/nest/cpu.max
echo "40000 100000" >$ROOT/nest/a/cpu.max
echo "40000 100000" >$ROOT/nest/b/cpu.max
echo "30000 100000" >$ROOT/burst/cpu.max
echo 30000 >$ROOT/burst/cpu.max.burst

# mean_of GROUP PERMILLE: over whole periods but for 1 ms, in which eight CPUs use 8; the bed may be
# 0.5 %.
mean_of() {
	see vmtool bound 2 "$1" "$2"
	measure "$(echo $1 | tr / _)_on_$many" "$(of mean)" ‰
	within "the mean of $1 on $many CPUs" "$(of mean)" "$(($2 * 98 / 100))" "$(($2 * 101 / 100))"
}

for online in "4" "4 8 12" "2 4 6 8 10 12 14"; do
	cpus $online
	start plain vmtool threads "$many"
	sleep 1
	mean_of plain 500
	echo 1 >$ROOT/plain/cgroup.kill
	start nest/a vmtool threads "$many"
	sleep 1
	mean_of nest/a 400
	start nest/b vmtool threads "$many"
	sleep 1
	mean_of nest 600
	echo 1 >$ROOT/nest/cgroup.kill
	# What was saved is spent once: any window has at most a quota, a burst, the quota of a refill that
	# comes at once, and what the silos held.
	sleep 0.3
	see vmtool bound 2 burst 300 "$many"
	measure burst_over_on_$many "$(of over_us)" us
	within "use beyond 300 ‰ with a burst of 30 ms on $many CPUs" "$(of over_us)" 30000 "$((90000 + 5000 * many))"
done
sched_ext_off
