# what: a burst spends what was saved and no more; burst = max is the quota, or what the groups above leave; it follows another program's limit
# modes: precise
# tier: long 7.3
# seconds: 180
throttled() { awk '/^throttled_usec/ { print $2 }' "$ROOT/$1/cpu.stat"; }

# is_spent WITHOUT THROTTLED MEAN: the burst ends nine tenths of the throttled time of ten seconds,
# and the mean use stays within the quota; measures both by these names.
is_spent() {
	sleep 1
	before=$(throttled service)
	used=$(usage service)
	sleep 10
	with=$(($(throttled service) - before))
	mean=$((($(usage service) - used) / 100000))
	measure "$2" $with us
	measure "$3" $mean %
	[ $((with * 10)) -lt $1 ] || fail "throttled time fell only from $1 to $with us"
	[ $mean -le 20 ] || fail "mean use of $mean % is above the quota"
}

# 35 ms of work every 430 ms under a quota of 20 ms in 100 ms: 8 % of a CPU on average, throttled
# unless it begins near a period's end. 430 is no multiple of the period, so that it begins
# everywhere in turn and not where this boot happens to put it.
group service slice
echo +cpu >$ROOT/slice/cgroup.subtree_control
group slice/service
inside service vmtool duty 8.14 430000 &
service=$!
tidegate set cgroup:/service quota=20ms
sleep 2
before=$(throttled service)
sleep 10
without=$(($(throttled service) - before))
measure throttled_without_burst $without us
[ $without -gt 300000 ] || fail "the service is not throttled: $without us in 10 s"

# A burst that is given is spent: nothing is throttled that was saved before.
tidegate set cgroup:/service burst=20ms
same "the burst" "$(cat $ROOT/service/cpu.max.burst)" 20000
sleep 1
before=$(throttled service)
sleep 6
given=$(($(throttled service) - before))
measure throttled_with_burst_20ms $given us
[ $((given * 10)) -lt $without ] || fail "a burst of all that is saved leaves $given us of throttling"

# All of the quota comes to the same.
tidegate set cgroup:/service burst=0
same "no burst" "$(cat $ROOT/service/cpu.max.burst)" 0
tidegate set cgroup:/service burst=max
same "the most burst" "$(cat $ROOT/service/cpu.max.burst)" 20000
is_spent $without throttled_with_max mean_use
tidegate status cgroup:/service
tidegate unset cgroup:/service
same "burst afterwards" "$(cat $ROOT/service/cpu.max.burst)" 0
same "quota afterwards" "$(cat $ROOT/service/cpu.max)" "max 100000"

# The same on a limit of another program, which a burst follows and keeps.
echo "20000 100000" >$ROOT/service/cpu.max
sleep 1
before=$(throttled service)
sleep 10
theirs=$(($(throttled service) - before))
measure throttled_by_another_program $theirs us
[ $theirs -gt 300000 ] || fail "the service is not throttled: $theirs us in 10 s"
tidegate set cgroup:/service burst=max
same "their limit" "$(cat $ROOT/service/cpu.max)" "20000 100000"
same "the burst of their limit" "$(cat $ROOT/service/cpu.max.burst)" 20000
is_spent $theirs throttled_by_another_program_with_max mean_use_by_another_program
echo "30000 100000" >$ROOT/service/cpu.max
sleep 2
same "the burst of a higher limit" "$(cat $ROOT/service/cpu.max.burst)" 30000
tidegate explain cgroup:/service
tidegate unset cgroup:/service
same "their limit afterwards" "$(cat $ROOT/service/cpu.max)" "30000 100000"
same "burst afterwards" "$(cat $ROOT/service/cpu.max.burst)" 0
echo max >$ROOT/service/cpu.max

# A group above with a limit leaves less.
echo "30000 100000" >$ROOT/slice/cpu.max
tidegate set cgroup:/slice/service quota=20ms burst=max
same "the burst that a group above leaves" "$(cat $ROOT/slice/service/cpu.max.burst)" 10000
tidegate unset cgroup:/slice/service
same "burst afterwards" "$(cat $ROOT/slice/service/cpu.max.burst)" 0

# As a pod's limit and its container's.
echo "20000 100000" >$ROOT/slice/service/cpu.max
tidegate set cgroup:/slice burst=max
same "the burst of the group" "$(cat $ROOT/slice/cpu.max.burst)" 30000
same "the burst of its child" "$(cat $ROOT/slice/service/cpu.max.burst)" 20000
tidegate unset cgroup:/slice
same "bursts afterwards" "$(cat $ROOT/slice/cpu.max.burst $ROOT/slice/service/cpu.max.burst)" "0
0"
kill $(cat $ROOT/service/cgroup.procs)
gone_soon $service
