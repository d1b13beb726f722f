# what: ordinary work takes no longer, and wakes no later, than under EEVDF: within 5 %
# modes: precise
# tier: long
# seconds: 200

# woken HOGS: as cyclictest, beside so many hogs.
woken() {
	pids=
	for _ in $(seq "$1"); do
		vmtool burn &
		pids="$pids $!"
	done
	[ "$1" = 0 ] || sleep 0.5
	SEEN=$(vmtool wake 4 2000 100)
	echo "$1 hogs: $SEEN"
	[ "$1" = 0 ] || finish $pids
}

# all PREFIX: every kind of work, into figures of that name.
all() {
	for groups in 1 4 8; do
		SEEN=ms=$(for _ in 1 2 3 4 5; do vmtool hackbench $groups $((80 / groups)); done | tee /dev/stderr | sed 's/ms=//' | sort -n | sed -n 3p)
		eval "$1_hackbench_$groups=$(of ms)"
		measure "$1_hackbench_$groups" "$(of ms)" ms
	done
	see vmtool schbench 16 4 200
	eval "$1_schbench=$(of mean_us) $1_schbench_p99=$(of p99_us)"
	measure "$1_schbench" "$(of mean_us)" us
	measure "$1_schbench_p99" "$(of p99_us)" us
	SEEN=$(vmtool build 4 200)
	eval "$1_build=$(of ms)"
	measure "$1_build" "$(of ms)" ms
	for hogs in 0 1 4; do
		woken $hogs
		eval "$1_wake_p50_$hogs=$(of p50_us) $1_wake_p99_$hogs=$(of p99_us)"
		measure "$1_wake_mean_$hogs" "$(of mean_us)" us
		measure "$1_wake_p50_$hogs" "$(of p50_us)" us
		measure "$1_wake_p99_$hogs" "$(of p99_us)" us
	done
}

all eevdf
sched_ext_on
all sched_ext
sched_ext_off
for what in hackbench_1 hackbench_4 hackbench_8 schbench schbench_p99 build wake_p50_0 wake_p50_1 wake_p50_4 wake_p99_0 wake_p99_1 wake_p99_4; do
	eval "ours=\$sched_ext_$what theirs=\$eevdf_$what"
	ratio=$(awk -v a="$ours" -v b="$theirs" 'BEGIN { printf "%.3f", a / b }')
	measure "ratio_$what" "$ratio" times
	within "$what under sched_ext, over EEVDF's" "$ratio" 0 1.05
done
