# what: the owner with the engine ext: headroom and a cap by the scheduler, copies of both in kernel files, and stop puts all back
# modes: precise
# kernels: 6.18 7.3
# needs: tidegate
# seconds: 200
tidegate agent --engine ext >/tmp/agent 2>&1 &
agent=$!
owner_ext_on $agent
same "the engine" "$(tidegate status --json | json engine)" ext

tidegate run --main --headroom 30% -- vmtool duty 40 10000 &
main=$!
tidegate run --side -- vmtool count /tmp/turns &
side=$!
gate_soon $side $SIDE
gate_soon $main $MAIN
sleep 2
seen 10 /tmp/turns $MAIN
# What is missing of the sum is the owner itself, whose loop watches on.
measure idle "$(of idle)" %
measure side "$(of /tmp/turns)" %
within "idle beside main at 40 % with 30 % to be kept" "$(of idle)" 29.5 30.5
within "side beside that" "$(of /tmp/turns)" 27.5 30.5
tidegate status >/tmp/status
cat /tmp/status
grep -q "by the scheduler; for the time without it, 1.0 ms in each 100.0 ms" /tmp/status || fail "status does not tell of the copy"
held || fail "no copy of side work's floor in $(cat $ROOT/$SIDE/cpu.max)"
same "the copy of side work's floor" "$(cat $ROOT/$SIDE/cpu.max)" "1000 100000"
tidegate explain pid:$side >/tmp/explain
grep -q "Engine: ext" /tmp/explain || { cat /tmp/explain; fail "explain does not name the engine"; }
finish $side $main

tidegate run --cap 200‰ --name capped -- vmtool count /tmp/capped &
capped=$!
gate_soon $capped $MAIN
sleep 2
seen 10 /tmp/capped
measure capped "$(of /tmp/capped)" %
# Work done, which is less than what is charged by what a thousand parkings a second cost in the emulator.
within "work under a cap of 200 permille" "$(of /tmp/capped)" 19.3 20.1
same "its copy" "$(cat $ROOT/$MAIN/capped/cpu.max)" "1600 8000"

tidegate stop
wait $agent || { cat /tmp/agent; fail "the owner ended with an error"; }
same "the state of sched_ext" "$(ext_state)" disabled
finish $capped
cat /tmp/agent
