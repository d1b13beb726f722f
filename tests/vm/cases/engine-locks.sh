# what: main waits for a file lock that side work holds: the holder goes first, 10 times sooner
# modes: precise
# tier: long
# seconds: 300
group main
PATH_OF=/tmp/lock

# waits NAME KIND: main's waits for 10 s, beside main's other work of 75 % of the CPU; in SEEN.
waits() {
	inside main vmtool duty 75 10000 14 &
	duty=$!
	sleep 3
	SEEN=$(inside main vmtool lock wait "$2" $PATH_OF 10 50000)
	wait $duty || true
	echo "$1 $2: $SEEN"
	measure "$1_$2_waits" "$(of waits)" ""
	for part in mean p99 worst; do measure "$1_$2_$part" "$(of ${part}_ms)" ms; done
}

# gated NAME KIND
gated() {
	tidegate run --side --headroom 20% --name job -- sh -c "vmtool threads 2 & exec vmtool lock hold $2 $PATH_OF 2000 4000" &
	job=$!
	waits "$1" "$2"
	tidegate status --json | grep -A 6 '"lock_boost"' | tr -d '\n '
	echo
	tidegate explain gate:job | grep -A 1 "locks that main waited" || true
	echo 1 >$ROOT/$SIDE/cgroup.kill
	wait $job || true
	gone_soon
	rm -f $PATH_OF
}

# at_most PARTS WHAT FOUND OF: FOUND is at most 1/PARTS of OF.
at_most() {
	awk -v n="$1" -v a="$3" -v b="$4" 'BEGIN { exit !(a != "" && a * n <= b) }' || fail "$2 is $3 ms, more than 1/$1 of $4"
}

mkdir -p /run/tidegate
chmod 755 /run/tidegate
echo 'lock_boost = "no"' >/run/tidegate/tidegate.toml
gated without flock
without=$(of mean_ms)
rm /run/tidegate/tidegate.toml
gated first flock
at_most 10 "the mean wait for a flock" "$(of mean_ms)" "$without"
for kind in fcntl ofd; do
	gated first $kind
	at_most 10 "the mean wait for $kind" "$(of mean_ms)" "$without"
done
