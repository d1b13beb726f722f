# what: who is kept waiting inside the kernel, by its weight, a quota, a cap or main, goes on and lets go of the lock that main waits for
# modes: precise
# tier: long
# seconds: 200

# waits_for NAME MOST_MS: main's writes to a file that GROUP's writer has locked nearly always.
waits_for() {
	see vmtool inside wait /tmp/file 30
	measure "$1"_waits "$(of waits)" times
	measure "$1"_worst "$(of worst_ms)" ms
	[ "$(of waits)" -ge 3 ] || fail "$1: main has waited $(of waits) times"
	within "$1: the longest that main waited, ms" "$(of worst_ms)" 1 "$2"
	sched_ext_is_on
}
group heavy light light/least quota cap side
echo +cpu >$ROOT/light/cgroup.subtree_control
echo 10000 >$ROOT/heavy/cpu.weight
echo 1 >$ROOT/light/cpu.weight
echo 1 >$ROOT/light/least/cpu.weight
echo "1000 1000000" >$ROOT/quota/cpu.max
sched_ext_on --json --gate 'cgroup:/cap cap=1‰' --gate 'cgroup:/side class=side headroom=20%'
start heavy vmtool burn
HEAVY=$STARTED

# By weight it has a slice of 1.4 ms in some minutes.
vmtool inside hold /tmp/file 1000000 $ROOT/light/least &
LIGHT=$!
waits_for weight 10000
finish $LIGHT

# So many that each has its turn after more than a second: 50 us in 5 s of 1 ‰.
for how in quota cap side; do
	start $how vmtool threads 100
	THREADS=$STARTED
	vmtool inside hold /tmp/file 1000000 $ROOT/$how &
	waits_for $how 10000
	finish $! $THREADS
done
