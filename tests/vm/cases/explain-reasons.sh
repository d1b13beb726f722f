# what: `explain` names each limit that holds a gate back, and never `demand` for a task that never sleeps
# modes: precise
# kernels: 6.18
# seconds: 150
# The limit of the gate of a process, or of a target.
limit() { tidegate explain "$1" --json | json limit; }
is() { [ "$(limit "$1")" = "$2" ]; }
# It is nearly always named at the first look after a second.
named() {
	sleep 1
	until_true 15 is "$1" "$2" || fail "$1: $2 is not named, but $(limit "$1"): $(tidegate explain "$1")"
}
# One agent for all: its start costs more than what is seen here.
tidegate agent run &
agent=$!
until_true 10 tidegate status >/dev/null

# Headroom; then main takes all: the tolerance. It never sleeps, so it is never called idle.
run_gated side --side --headroom 30% -- vmtool burn
named pid:$side headroom
for _poll in 1 2 3 4 5 6 7 8 9 10; do
	is pid:$side demand && fail "a task that never sleeps is called idle"
	sleep 0.3
done
tidegate run --main -- vmtool burn &
main=$!
named pid:$side tolerance
is pid:$side demand && fail "a task that never sleeps is called idle at the tolerance"
finish $main
# The kernel's group freezer.
side_group=$(cgroup_of $side | cut -c 2-)
echo 1 >"$ROOT/$side_group/cgroup.freeze"
named pid:$side frozen
echo 0 >"$ROOT/$side_group/cgroup.freeze"
run_gated other --side -- vmtool burn
named pid:$side weight
finish $side $other

# Nothing is asked for: the idle class alone.
tidegate run --main -- vmtool duty 60 10000 60 &
main=$!
run_gated side --side -- vmtool burn
named pid:$side idle_class
finish $side $main

# Limits of its own.
for flags in "--quota 20ms quota" "--cap 200‰ cap" "--cap-soft 0 soft_cap"; do
	set -- $flags
	tidegate run "$1" "$2" -- vmtool burn &
	job=$!
	named pid:$job "$3"
	finish $job
done

# Limits of others: on a group around it, and on its own.
group web
echo "+cpu" >$ROOT/web/cgroup.subtree_control
mkdir $ROOT/web/app
inside web/app vmtool burn &
app=$!
tidegate set cgroup:/web/app class=main
named cgroup:/web/app none
echo "10000 100000" >$ROOT/web/cpu.max
named cgroup:/web/app parent
echo "max" >$ROOT/web/cpu.max
echo "10000 100000" >$ROOT/web/app/cpu.max
named cgroup:/web/app outside
echo "max" >$ROOT/web/app/cpu.max
tidegate unset cgroup:/web/app
kill $(cat $ROOT/web/app/cgroup.procs)
finish $app

# Nothing to run.
run_gated idle --side -- sleep 1000
named pid:$idle demand
finish $idle
gone_soon $agent
