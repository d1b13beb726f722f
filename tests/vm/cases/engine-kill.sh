# what: kill -9 of the agent, the guardian, both: side stays held, both come back, the end leaves nothing
# modes: smp
# kernels: 6.18
# seconds: 120

not_held() { ! held; }
# held_for SECONDS WHEN: side is held at each of many looks.
held_for() {
	until_true "$1" not_held || return 0
	fail "$2: idle '$(cat $ROOT/$SIDE/cpu.idle)', max '$(cat $ROOT/$SIDE/cpu.max)'"
}
both_back() {
	alive "$(agent)" && alive "$(guardian)"
}

run_gated side --side --headroom 30% -- vmtool burn
until_true 5 both_back || fail "agent '$(agent)', guardian '$(guardian)'"

first=$(agent)
kill -9 "$first"
held_for 3 "after the agent's death"
alive $side || fail "side died with the agent"
until_true 10 both_back || fail "the agent did not come back"
[ "$(agent)" != "$first" ] || fail "the agent is the one that was killed"
in_gate $side $SIDE || fail "side left its gate: $(cgroup_of $side)"

first=$(guardian)
kill -9 "$first"
held_for 3 "after the guardian's death"
until_true 10 both_back || fail "the guardian did not come back"

kill -9 "$(agent)" "$(guardian)"
held_for 3 "after both deaths"
alive $side || fail "side died with them"
# The next use starts a new agent, which takes up the gate that it finds.
tidegate run --main -- sleep 2
until_true 10 both_back || fail "no agent after the next start"
held_for 1 "after the next start"
in_gate $side $SIDE || fail "side left its gate: $(cgroup_of $side)"

kill -STOP "$(agent)"
held_for 3 "while the agent is frozen"
kill -CONT $(ours)
held_for 1 "after it thawed"
gone_soon $side
