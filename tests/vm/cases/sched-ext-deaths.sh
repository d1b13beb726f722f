# what: an agent on demand that carries sched_ext is killed, frozen, and killed together with its guardian: its guardian's next agent loads sched_ext again, a frozen one's scheduler goes on as it was told, and what nobody guards is held by the copies
# modes: precise
# tier: long
# seconds: 200
times_enabled() { cat /sys/kernel/sched_ext/enable_seq; }
answered() { AGENT=$(agent 2>/dev/null) && [ -n "$AGENT" ]; }
replaced() { _now=$(agent 2>/dev/null) && [ -n "$_now" ] && [ "$_now" != "$AGENT" ]; }
expired() { grep -q "lease has expired" /run/tidegate/agent.log; }
floor_moved() { [ "$(cat $ROOT/$SIDE/cpu.max)" != "1000 100000" ]; }
answers() { [ "$(agent 2>/dev/null)" = "$AGENT" ]; }

tidegate agent run --on-demand --engine sched_ext >/tmp/agent 2>&1 &
until_true 10 answered || { cat /tmp/agent; fail "no agent answers"; }
eject_work
agent_ext_on "$AGENT"
began=$(times_enabled)

# Killed: its guardian starts another, with the engine that was asked for by name.
around "the agent's death" by_kill
until_true 20 replaced || fail "no other agent answers: '$(ours)'"
AGENT=$(agent)
agent_ext_on "$AGENT"
same "the next agent's engine" "$(tidegate status --json | json engine)" sched_ext
[ "$(times_enabled)" -gt "$began" ] || fail "the scheduler was never taken out"

# Frozen, beside a main that leaves something over: the guardian acts, and the scheduler goes on as
# it was told.
finish $HOG
began=$(times_enabled)
seen 4 /tmp/turns /tmp/capped
was=$(of /tmp/turns)
measure side_before $was %
within "side work beside a capped main" $was 50 61
kill -STOP $AGENT
until_true 6 expired || fail "the guardian has not seen that its agent is frozen"
same "side work's quota" "$(cat $ROOT/$SIDE/cpu.max)" "1000 100000"
sched_ext_is_on
seen 4 /tmp/turns /tmp/capped
measure side_frozen "$(of /tmp/turns)" %
within "side work under a frozen agent" "$(of /tmp/turns)" 50 61
within "use under a cap of 200 permille and a frozen agent" "$(of /tmp/capped)" 17 20.5
kill -CONT $AGENT
until_true 6 answers || fail "the agent does not go on"
sched_ext_is_on
same "times that the scheduler was enabled" "$(times_enabled)" "$began"

# Agent and guardian at once: nobody is left to act, and the copies do.
kill -9 "$(guardian)" $AGENT
until_true 6 [ "$(sched_ext_state)" = disabled ] || true
same "the state of sched_ext without an agent" "$(sched_ext_state)" disabled
seen 4 /tmp/turns /tmp/capped
measure side_unguarded "$(of /tmp/turns)" %
measure capped_unguarded "$(of /tmp/capped)" %
within "side work that nobody guards" "$(of /tmp/turns)" 0.5 1.5
within "use under a cap of 200 permille that nobody guards" "$(of /tmp/capped)" 17 20.5
same "processes of ours" "$(ours)" ""
# The next agent takes all up, here with kernel files.
tidegate run --side --quiet -- true
until_true 10 floor_moved || fail "side work stays at the tolerance under the next agent"
for _task in $TURNS $CAPPED; do alive $_task || fail "process $_task is lost"; done
gone_soon $TURNS $CAPPED
