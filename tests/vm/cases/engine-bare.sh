# what: it works where the root hands no controller down, as before any service manager
# modes: precise
# needs: tidegate
for controller in cpu cpuset memory pids; do echo "-$controller" >$ROOT/cgroup.subtree_control; done
[ ! -e $ROOT/test/cpu.max ] || fail "the root still hands cpu down"
tidegate run --side --headroom 30% -- vmtool burn &
side=$!
gate_soon $side $SIDE
sleep 3
held || fail "side is not held"
seen 5 $SIDE
measure idle "$(of idle)" %
within "idle" "$(of idle)" 29 31
finish $side
gone_soon
