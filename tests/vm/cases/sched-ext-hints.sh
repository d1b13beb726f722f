# what: under sched_ext a hint says who runs first and not how much; nice levels and cpu.idle are kept; a task that wakes while another leaves the CPU is next
# modes: precise
# tier: long
# seconds: 120
group first plain last
sched_ext_on --gate 'cgroup:/first latency=-20' --gate 'cgroup:/last latency=19'

# How late a task of a group wakes beside three hogs, one in each group.
for name in first plain last; do
	start $name vmtool burn
	eval "$name=$STARTED"
done
sleep 1
for name in first plain last; do
	SEEN=$(inside $name vmtool wake 4 5000 500)
	echo "$name: $SEEN"
	eval "mean_$name=$(of mean_us)"
	measure "wake_$name" "$(of mean_us)" us
	measure "wake_p99_$name" "$(of p99_us)" us
done
ordered=$(awk -v a="$mean_first" -v b="$mean_plain" -v c="$mean_last" 'BEGIN { print (a <= b && b < c) }')
same "whether who is to be first wakes sooner than the plain one, and that one sooner than who is to be last" "$ordered" 1

# A slice of a task's own stands for a hint: the shortest for -20, and the longest for 19. In a
# group without one.
for slice in 100000 100000000; do
	SEEN=$(inside plain vmtool sliced $slice vmtool wake 3 5000 500)
	echo "slice of $slice: $SEEN"
	eval "mean_$slice=$(of mean_us)"
	measure "wake_slice_$slice" "$(of mean_us)" us
done
ordered=$(awk -v a="$mean_100000" -v b="$mean_plain" -v c="$mean_100000000" 'BEGIN { print (a <= b && b < c) }')
same "whether who has the shortest slice wakes sooner than who has none, and that one sooner than who has the longest" "$ordered" 1

# Shares stay.
see vmtool watch 6 first plain last
for name in first plain last; do
	measure "share_$name" "$(of $name)" %
	within "a third of the CPU, whatever the hint ($name)" "$(of $name)" 33.0 33.67
done
sched_ext_is_on
finish $first $plain $last

# A task that wakes while the CPU's own has left it goes before the hogs that wait: 1 ms after a
# real-time task has begun, which takes 2 ms, or at the same moment as another.
start plain vmtool threads 4
hogs=$STARTED
vmtool realtime 50 vmtool beat 700 10000 0 2000 >/tmp/realtime &
realtime=$!
sleep 0.5
SEEN=$(inside plain vmtool beat 500 10000 1000 100)
echo "beside a real-time task: $SEEN"
measure wake_beside_realtime "$(of mean_us)" us
within "how late a task is beside a real-time task and four hogs, us" "$(of mean_us)" 900 1500
wait $realtime
inside plain vmtool beat 500 7300 0 100 >/tmp/twin &
twin=$!
SEEN=$(inside plain vmtool beat 500 7300 0 100)
wait $twin
for SEEN in "$SEEN" "$(cat /tmp/twin)"; do
	echo "of two at once: $SEEN"
	within "how late one of two is that wake at once, us" "$(of mean_us)" 0 700
done
finish $hogs

# Nice 5 is 335 of 1024's scale: 335 / 1359.
start first vmtool burn
nice=$STARTED
renice -n 5 -p $nice
start first vmtool burn
plain=$STARTED
sleep 1
before=$(vmtool cpu $nice $plain)
sleep 10
share=$(printf '%s\n%s\n' "$before" "$(vmtool cpu $nice $plain)" |
	awk '{ ns[NR] = $1 } END { a = ns[3] - ns[1]; b = ns[4] - ns[2]; printf "%.2f", 100 * a / (a + b) }')
measure share_of_nice_5 "$share" %
within "the share of nice 5 beside nice 0" "$share" 24.40 24.90
finish $nice $plain

# The idle class is weight 3 of 1024's scale.
sched_ext_off
echo 1 >$ROOT/last/cpu.idle
sched_ext_on
start last vmtool burn
idle=$STARTED
start plain vmtool burn
plain=$STARTED
sleep 1
see vmtool watch 5 last plain
measure share_of_idle "$(of last)" %
within "cpu.idle beside weight 100" "$(of last)" 0.05 0.8
sched_ext_is_on
