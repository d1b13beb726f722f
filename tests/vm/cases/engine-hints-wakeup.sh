# what: hints shorten a task's wakeup beside three hogs, and take nothing from them: shares within 1 %
# modes: precise
# tier: long
# seconds: 120

# woken HINT INTERVAL_US WORK_US: a task that wakes and works beside three hogs of its own group;
# leaves "mean_us=... p99_us=..." in SEEN. The hint comes first: starting the agent is work for the
# one CPU, too.
woken() {
	sh -c 'sleep 2; exec vmtool wake 8 "$@"' sh "$2" "$3" >/tmp/woken &
	waker=$!
	[ "$1" = 0 ] || tidegate set pid:$waker latency="$1" >/tmp/set
	wait $waker
	SEEN=$(cat /tmp/woken)
	echo "hint $1, $3 of $2 us: $SEEN"
}

# at_most PARTS WHAT FOUND OF: FOUND is at most 1/PARTS of OF.
at_most() {
	awk -v n="$1" -v a="$3" -v b="$4" 'BEGIN { exit !(a != "" && a * n <= b) }' || fail "$2 is $3 us, more than 1/$1 of $4"
}

vmtool burn &
a=$!
vmtool burn &
b=$!
vmtool burn &
c=$!
# A tenth of the CPU, in turns of 0.5 ms: the hint brings the mean down. The p99 is the kernel's
# own: a hog that is owed more runs first, and until the tick.
woken 0 5000 500
mean=$(of mean_us)
measure work_mean_at_0 "$mean" us
measure work_p99_at_0 "$(of p99_us)" us
woken -20 5000 500
measure work_mean_at_-20 "$(of mean_us)" us
measure work_p99_at_-20 "$(of p99_us)" us
at_most 1.5 "the mean at -20" "$(of mean_us)" "$mean"
# As cyclictest, with next to no work.
woken 0 1000 20
p99=$(of p99_us)
measure cyclic_p99_at_0 "$p99" us
woken -20 1000 20
measure cyclic_p99_at_-20 "$(of p99_us)" us
at_most 1.2 "cyclictest's p99 at -20" "$(of p99_us)" "$p99"
# The hogs' own hint is worth more: their deadlines go far behind the waker's.
for hog in $a $b $c; do tidegate set pid:$hog latency=19 >/tmp/set; done
woken -20 1000 20
measure cyclic_p99_at_-20_hogs_at_19 "$(of p99_us)" us
at_most 10 "cyclictest's p99 at -20, hogs at 19," "$(of p99_us)" "$p99"

# A hog with a hint has its share, and the others have theirs.
tidegate set pid:$a latency=-20 >/tmp/set
for hog in $b $c; do tidegate unset pid:$hog; done
same "its slice" "$(vmtool slice $a)" 100000
used() { for _pid in $a $b $c; do awk '{ print $1 }' /proc/$_pid/schedstat; done; }
before=$(used)
sleep 10
shares=$(printf '%s\n%s\n' "$before" "$(used)" | awk '
	NR <= 3 { was[NR] = $1; next }
	{ used[NR - 3] = $1 - was[NR - 3]; sum += used[NR - 3] }
	END { for (i = 1; i <= 3; i++) printf "%.2f ", 100 * used[i] / sum }')
echo "shares: $shares"
set -- $shares
measure share_of_a_hog_at_-20 "$1" %
for share; do within "a third of the CPU" "$share" 33.00 33.67; done
gone_soon $a $b $c
