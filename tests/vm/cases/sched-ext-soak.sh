# what: sched-ext-stress for as long as make soak says (TIDEGATE_SOAK_S, 30 minutes a kernel; a minute by itself), the scheduler loaded anew each round
# modes: smp
# seconds: 4000
# tier: long
stress_on
end=$(($(cut -d. -f1 /proc/uptime) + $(cat /vm/cases/soak_s)))
round=0
while [ "$(cut -d. -f1 /proc/uptime)" -lt $end ]; do
	round=$((round + 1))
	torment 30 $round
	same_is_charged
	nothing_miscounted
	torment_along 5 $((1000 + round))
	stress_reload
	torment_over
	nothing_miscounted
done
measure rounds $round rounds
measure ejected_by_a_host_that_stood $EJECTED times
measure host_stood "$(stood 100000)" s
