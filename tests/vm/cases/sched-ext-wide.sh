# what: headroom on two, four and eight CPUs under virtual time: beside a main that pulses on all of them, or none, idle is as asked
# modes: wide
# tier: long
# seconds: 500
group main side
# The kernel tells the caches of CPUs on line alone, and the scheduler reads them once.
cpus 2 4 6 8 10 12 14
sched_ext_on --gate 'cgroup:/main class=main headroom=30%' --gate 'cgroup:/side class=side'
for n in $(seq 16); do
	into side vmtool burn &
done
# From eight on, two CPUs share a core.
for online in "4" "4 8 12" "2 4 6 8 10 12 14"; do
	cpus $online
	sleep 1.5
	see vmtool clock 5 side test
	measure "idle_alone_on_$many" "$(of idle)" %
	within "idle with side work alone on $many CPUs" "$(of idle)" 29.5 31.5
	for load in 30 60; do
		mains=
		for n in $(seq "$many"); do
			into main vmtool duty $load 10000 &
			mains="$mains $!"
		done
		sleep 3.5
		see vmtool clock 5 main side test
		measure "idle_beside_${load}_on_$many" "$(of idle)" %
		measure "side_beside_${load}_on_$many" "$(of side)" %
		# Each alarm that is refuted costs side work some 20 ms, of which there is one now and then.
		within "idle beside a main of $load % on $many CPUs" "$(of idle)" 29.5 32
		finish $mains
	done
done
sched_ext_off
