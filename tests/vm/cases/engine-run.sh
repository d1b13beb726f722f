# what: a side command runs in its gate: below the side root, idle class, with a quota; nothing stays afterwards
# modes: smp
before=$(cat $ROOT/cgroup.subtree_control)
run_gated side --side --headroom 30% -- vmtool burn
until_true 5 grep -qx vmtool /proc/$side/comm || fail "the process is '$(cat /proc/$side/comm)'"
until_true 5 held || fail "idle '$(cat $ROOT/$SIDE/cpu.idle)', max '$(cat $ROOT/$SIDE/cpu.max)'"
run_gated main --main -- sleep 1000
sleep 2
same "sensing" "$(tidegate status --json | json sensing)" bpf
tidegate status
tidegate explain gate:vmtool
gone_soon $side $main
same "controllers of the root" "$(cat $ROOT/cgroup.subtree_control)" "$before"
