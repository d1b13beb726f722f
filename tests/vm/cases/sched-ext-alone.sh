# what: side work alone on two, four and eight idle CPUs has what is due under the scheduler, from one hog to one more than CPUs
# modes: wide
# tier: long
# seconds: 400
group main side
for headroom in 0 20; do
	sched_ext_on --gate "cgroup:/main class=main headroom=$headroom%" --gate 'cgroup:/side class=side'
	for online in "4" "4 8 12" "2 4 6 8 10 12 14"; do
		# shellcheck disable=SC2086 # a list of words
		cpus $online
		for n in 1 "$many" $((many + 1)); do
			hogs=
			for _n in $(seq "$n"); do
				into side vmtool burn &
				hogs="$hogs $!"
			done
			sleep 2
			see vmtool clock 5 main side test
			# Of the machine: what one CPU a hog is, or what the headroom and everything else leave.
			of_due=$(awk -v n="$n" -v cpus="$many" -v h="$headroom" -v side="$(of side)" -v idle="$(of idle)" 'BEGIN {
				left = side + idle - h
				due = 100 * n / cpus < left ? 100 * n / cpus : left
				printf "%.2f", 100 * side / due
			}')
			measure "alone_${headroom}_${n}_of_$many" "$of_due" %
			within "what $n hogs get of their due on $many CPUs, headroom $headroom %" "$of_due" 98 101
			# shellcheck disable=SC2086
			finish $hogs
		done
	done
	sched_ext_off
done
