# what: the agent with the engine sched_ext: headroom and a cap by the scheduler, copies of both in kernel files, and stop puts all back
# modes: precise
# tier: long 7.3
# seconds: 200
agent_ext_begin
same "the engine" "$(tidegate status --json | json engine)" sched_ext

tidegate run --main --headroom 30% -- vmtool duty 40 10000 &
main=$!
run_gated side --side -- vmtool count /tmp/turns
gate_soon $main $MAIN
sleep 3.5
see vmtool clock 10 $SIDE $MAIN test /tmp/turns
measure idle "$(of idle)" %
measure side "$(of $SIDE)" %
# Main and the agent (whose loop watches on) have what side work is short of 30 %.
measure main "$(of $MAIN)" %
measure agent "$(of test)" %
within "the agent's own use" "$(of test)" 0 1.2
# 30.1 in some boots, 30.6 in others, on both kernels; the cause is not known. Both are steady: the
# scheduler's timer (1 ms) and main's turns (10 ms) keep the phase in which they began.
within "idle beside main at 40 % with 30 % to be kept" "$(of idle)" 29.8 30.8
tidegate status >/tmp/status
cat /tmp/status
grep -q "by the scheduler; for the time without it, 1.0 ms in each 100.0 ms" /tmp/status || fail "status does not tell of the copy"
# Means of the same second, and not one step of the scheduler's law within one turn of main.
within "CPUs that status says main uses" "$(sed -n 's/.*Decision: main uses \([0-9.]*\) CPUs;.*/\1/p' /tmp/status)" 0.35 0.45
within "CPUs that status says side work may use" "$(sed -n 's/.*; side work may use \([0-9.]*\).*/\1/p' /tmp/status)" 0.25 0.35
held || fail "no copy of side work's floor in $(cat $ROOT/$SIDE/cpu.max)"
same "the copy of side work's floor" "$(cat $ROOT/$SIDE/cpu.max)" "1000 100000"
tidegate explain pid:$side >/tmp/explain
grep -q "Engine: sched_ext" /tmp/explain || { cat /tmp/explain; fail "explain does not name the engine"; }
finish $side $main

run_gated capped --cap 200‰ --name capped -- vmtool count /tmp/capped
sleep 3.5
see vmtool clock 10 $MAIN/capped
measure capped "$(of $MAIN/capped)" %
within "use under a cap of 200 permille" "$(of $MAIN/capped)" 19.9 20.1
same "its copy" "$(cat $ROOT/$MAIN/capped/cpu.max)" "1600 8000"
tidegate status gate:capped >/tmp/shown
grep -q "Cap: at most 0.2 CPUs: held back [0-9][0-9]* times" /tmp/shown || { cat /tmp/shown; fail "show does not tell what the scheduler held back"; }
tidegate run --cap-soft 100‰ --name soft -- vmtool burn &
soft=$!
soft_binds() { [ "$(tidegate explain gate:soft --json | json limit)" = soft_cap ]; }
until_true 10 soft_binds || fail "what binds a hog with a soft cap is not that"
# It binds from its first moment in the background on; a tenth of a second of that takes longer to
# be shown.
background_is_shown() {
	tidegate status gate:soft >/tmp/shown
	tr -s '\n ' ' ' </tmp/shown | grep -q "Cap: above 0.1 CPUs only what no other task wants: \(0[.][1-9]\|[1-9]\)"
}
until_true 10 background_is_shown || { cat /tmp/shown; fail "show does not tell of the background"; }
tidegate doctor >/tmp/doctor
grep -q "Agent: runs: .*engine sched_ext" /tmp/doctor || { cat /tmp/doctor; fail "doctor does not name the agent's engine"; }
finish $soft

tidegate agent stop
wait $AGENT || { cat /tmp/agent; fail "the agent ended with an error"; }
same "the state of sched_ext" "$(sched_ext_state)" disabled
finish $capped
cat /tmp/agent
