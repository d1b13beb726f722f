# what: a side command runs in its gate: below the side root, idle class, with a quota; nothing stays afterwards
# modes: smp
# kernels: 6.18 7.3
# needs: tidegate
before=$(cat $ROOT/cgroup.subtree_control)
tidegate run --side --headroom 30% -- vmtool burn &
side=$!
gate_soon $side $SIDE
until_true 5 grep -qx vmtool /proc/$side/comm || fail "the process is '$(cat /proc/$side/comm)'"
until_true 5 held || fail "idle '$(cat $ROOT/$SIDE/cpu.idle)', max '$(cat $ROOT/$SIDE/cpu.max)'"
tidegate run --main -- sleep 1000 &
main=$!
gate_soon $main $MAIN
sleep 2
same "sensing" "$(tidegate status --json | json sensing)" bpf
tidegate status
tidegate explain gate:vmtool
finish $side $main
gone_soon
same "controllers of the root" "$(cat $ROOT/cgroup.subtree_control)" "$before"
