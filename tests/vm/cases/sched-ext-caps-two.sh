# what: the sched_ext engine's hard cap of a group on two CPUs holds over any window, also of hogs that start at different moments
# modes: wide
# kernels: 6.18 7.3
# tier: long
# needs: tidegate
# seconds: 60
cpus 4
group cap500
sched_ext_on --gate 'cgroup:/cap500 cap_hard=500‰'
# The scheduler is in force before its gates are.
sleep 1
for round in 1 2 3; do
	SEEN=$(vmtool bound 0.3 cap500 500 2)
	echo "$SEEN"
	OVER=$(of over_us)
	measure "over_500_on_2_round_$round" "$OVER" us
	# The depth is 5 ms; the reader, turns of the emulator and 1 ‰ of the time are 0.25.
	within "use beyond 500 ‰ over any window" "$OVER" 3000 5250
done
sched_ext_is_on
sched_ext_off
