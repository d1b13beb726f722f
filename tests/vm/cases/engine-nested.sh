# what: run inside run, and beside it; children stay in the gate
# modes: precise
# kernels: 6.18
# seconds: 40
run_gated outer --side --headroom 20% -- sh -c 'tidegate run --side -- vmtool burn & echo $! >/tmp/inner; vmtool burn & echo $! >/tmp/child; wait'
until_true 5 [ -s /tmp/child ] || fail "the outer command did not start"
gate_soon "$(cat /tmp/inner)" $SIDE
gate_soon "$(cat /tmp/child)" $SIDE
same "the child's gate" "$(cgroup_of "$(cat /tmp/child)")" "$(cgroup_of $outer)"
# Side work cannot lift itself: what it starts as main is still below the side root.
run_gated sibling --main -- sleep 100
held || fail "the side root is not held"
seen 3 $SIDE
within "idle at a headroom of 20 %" "$(of idle)" 18 23
gone_soon "$(cat /tmp/inner)" "$(cat /tmp/child)" $outer $sibling
