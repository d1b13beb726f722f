# what: set pid: confines a running process in place, in a threaded child; unset puts everything back
# modes: precise
# tier: long 7.3
# seconds: 40
group service
inside service vmtool threads 3 &
process=$!
until_true 5 grep -q . $ROOT/service/cgroup.procs || fail "the process did not start"
pid=$(cat $ROOT/service/cgroup.procs)
sleep 1
tidegate set "pid:$pid" class=side headroom=30%
sleep 1
same "home of the process" "$(cat $ROOT/service/cgroup.procs)" "$pid"
child=$(dirname $ROOT/service/*/cgroup.threads)
same "type of the child" "$(cat "$child/cgroup.type")" threaded
same "threads in the child" "$(wc -l <"$child/cgroup.threads")" 3
# The trim takes a few seconds to learn what the quota's writes gave away.
sleep 4
seen 10 service
measure side "$(of service)" %
within "idle" "$(of idle)" 28 32
tidegate status "pid:$pid"
tidegate unset "pid:$pid"
until_true 5 sh -c "[ -z \"\$(ls -d $ROOT/service/*/ 2>/dev/null)\" ]" || fail "left in the group: $(ls -d $ROOT/service/*/)"
same "type of the group" "$(cat $ROOT/service/cgroup.type)" domain
same "threads at home" "$(wc -l <$ROOT/service/cgroup.threads)" 3
same "controllers handed down" "$(cat $ROOT/service/cgroup.subtree_control)" ""
gone_soon $process

# An agent in a container has a cgroup namespace of its own, from which other groups have no names,
# unless it is told so.
group box/inner box/other
echo +cpu >$ROOT/box/cgroup.subtree_control
into box/other vmtool burn &
process=$!
into box/inner vmtool apart tidegate agent run --host-cgroups &
agent=$!
until_true 5 tidegate status >/dev/null || fail "no agent answers"
same "the agent that answers" "$(agent)" $agent
tidegate set "pid:$process" class=side
same "type of the child" "$(cat $ROOT/box/other/*/cgroup.type)" threaded
tidegate unset "pid:$process"
gone_soon $process $agent
