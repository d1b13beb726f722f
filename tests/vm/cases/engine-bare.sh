# what: it works where the root hands no controller down, as before any service manager
# modes: precise
# kernels: 6.18
for controller in cpu cpuset memory pids; do echo "-$controller" >$ROOT/cgroup.subtree_control; done
[ ! -e $ROOT/test/cpu.max ] || fail "the root still hands cpu down"
run_gated side --side --headroom 30% -- vmtool burn
sleep 3
held || fail "side is not held"
seen 5 $SIDE
measure idle "$(of idle)" %
within "idle" "$(of idle)" 29 31
gone_soon $side
