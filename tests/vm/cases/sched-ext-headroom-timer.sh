# what: what the headroom's timer costs at each of its passes, by CPUs on line (16 are possible), while side work waits for its share
# modes: wide
# tier: long
# seconds: 300
TRACE=/sys/kernel/tracing
mount -t tracefs tracefs $TRACE 2>/dev/null || true

# The mean of a pass and passes in a second: of all BPF timers, that which fires most often.
passes() {
	echo >$TRACE/trace
	echo 1 >$TRACE/tracing_on
	sleep 1
	echo 0 >$TRACE/tracing_on
	awk '
		{ for (i = 1; i <= NF; i++) if ($i ~ /^hrtimer=/) timer = $i }
		{ match($0, /[0-9]+\.[0-9]+: hrtimer/); at = substr($0, RSTART, RLENGTH - 9) + 0 }
		/hrtimer_expire_entry/ && /bpf_timer_cb/ { began[timer] = at }
		/hrtimer_expire_exit/ && began[timer] { sum[timer] += at - began[timer]; n[timer]++; began[timer] = 0 }
		END {
			for (timer in n) if (n[timer] > n[most]) most = timer
			if (n[most]) printf "%.2f %d\n", 1e6 * sum[most] / n[most], n[most]
		}' $TRACE/trace
}

group main side
for event in expire_entry expire_exit; do echo 1 >$TRACE/events/timer/hrtimer_$event/enable; done
echo 0 >$TRACE/tracing_on
echo 8192 >$TRACE/buffer_size_kb
sched_ext_on --gate "cgroup:/main class=main headroom=30%" --gate 'cgroup:/side class=side'
for online in "" "4 8 12" "2 4 6 8 10 12 14"; do
	# shellcheck disable=SC2086 # a list of words
	cpus $online
	for n in 1 $((2 * many)); do
		hogs=
		for _n in $(seq "$n"); do
			into side vmtool burn &
			hogs="$hogs $!"
		done
		sleep 1
		# shellcheck disable=SC2046
		set -- $(passes)
		[ $# = 2 ] || fail "no pass was traced"
		measure "pass_${many}_cpus_${n}_hogs" "$1" us
		within "passes in a second on $many CPUs" "$2" 800 1200
		# shellcheck disable=SC2086
		finish $hogs
	done
done
for event in expire_entry expire_exit; do echo 0 >$TRACE/events/timer/hrtimer_$event/enable; done
echo 8 >$TRACE/buffer_size_kb
sched_ext_off
