# what: a capped group that forks does not stand still: in each second it has what it may use
# modes: precise
# tier: long
# seconds: 180
for rate in 50 200 900; do group forks$rate; done
sched_ext_on --json --gate 'cgroup:/forks50 cap_hard=50‰' --gate 'cgroup:/forks200 cap_hard=200‰' --gate 'cgroup:/forks900 cap_hard=900‰'

# forks_under RATE SECONDS LEAST MOST: what it has in each of the seconds, in ‰. The most is the
# law's, with the bucket's depth. A second of many forks is what costs the emulator most.
forks_under() {
	start forks$1 vmtool forks 2 4 5000
	sleep 2
	for _second in $(seq "$2"); do
		SEEN=$(vmtool clock 1 forks$1)
		of forks$1
	done | sort -n | awk '{ printf "%.1f\n", $1 * 10 }' >/tmp/seconds
	echo 1 >$ROOT/forks$1/cgroup.kill
	same "the seconds that were measured" "$(wc -l </tmp/seconds)" "$2"
	LEAST=$(head -n 1 /tmp/seconds) MOST=$(tail -n 1 /tmp/seconds)
	measure "of_$1_least" "$LEAST" ‰
	measure "of_$1_most" "$MOST" ‰
	measure "of_$1_mean" "$(awk '{ s += $1 } END { printf "%.1f", s / NR }' /tmp/seconds)" ‰
	within "the least of $2 seconds under $1 ‰" "$LEAST" "$3" "$4"
	within "the most of $2 seconds under $1 ‰" "$MOST" "$3" "$4"
}
# The least is not the law's: one second in twenty may lose 3 ms, which at 200 ‰ is what the bucket
# cannot hold after 25 ms without a run. Where a group stood still, seconds had 180 to 191.
forks_under 50 10 46 50.6
forks_under 200 10 195 202
forks_under 900 3 893 909.5
sched_ext_is_on
