# what: headroom in the scheduler: at each row of the seed's table idle is as asked within 0.5 points over 10 s; where main takes every CPU side work has its tolerance
# modes: precise
# tier: long
# seconds: 240
group main side
into side vmtool count /tmp/turns &
until_true 10 [ -s /tmp/turns ]
sched_ext_on --gate 'cgroup:/main class=main headroom=30%' --gate 'cgroup:/side class=side'
# Rows of crates/law/tests/data/headroom_law.csv; where main leaves less than the headroom, side
# gets the tolerance.
for load in 30 40 50 60 70 80; do
	into main vmtool duty $load 10000 &
	main=$!
	sleep 1.5
	see vmtool clock 10 main side test /tmp/turns
	measure "idle_main_$load" "$(of idle)" %
	measure "side_main_$load" "$(of side)" %
	if [ $load -le 60 ]; then
		within "idle with main at $load %" "$(of idle)" 29.8 30.3
		# What side work got done of it: the scheduler's timer and its switches, some 0.4 points, are at
		# its expense.
		within "the work done by side" "$(of /tmp/turns)" "$(awk -v s="$(of side)" 'BEGIN { print s - 1 }')" "$(of side)"
	else
		within "side with main at $load %" "$(of side)" 0.95 1.2
	fi
	finish $main
done
into main vmtool burn &
SEEN=$(vmtool settled 10 main /tmp/turns)
measure side_by_default "$(of /tmp/turns)" %
within "side beside a main that takes all" "$(of /tmp/turns)" 0.95 1.1
sched_ext_off
sched_ext_on --gate 'cgroup:/main class=main headroom=30% tolerance=5%' --gate 'cgroup:/side class=side'
SEEN=$(vmtool settled 10 main /tmp/turns)
measure side_with_5_percent "$(of /tmp/turns)" %
within "side with a tolerance of 5 %" "$(of /tmp/turns)" 4.8 5.3
sched_ext_is_on
cat /tmp/sched_ext
