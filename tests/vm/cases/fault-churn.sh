# what: groups come and go by the hundred around and in a target, and the target itself goes: nothing is mistaken or left
# modes: smp
# kernels: 6.18
# seconds: 90
run_gated side --side --headroom 30% --name job -- vmtool burn
first=$(agent)
mkdir $ROOT/other
tidegate set cgroup:/other class=side >/dev/null
made=0
for dir in $ROOT $ROOT/other $ROOT/$SIDE/job; do
	for _round in 1 2 3 4 5 6 7 8 9 10; do
		for name in a b c d e f g h i j; do
			if mkdir $dir/churn-$name 2>/dev/null; then made=$((made + 1)); fi
		done
		rmdir $dir/churn-* 2>/dev/null || true
		# Its idle class it may leave for a while: with a tolerance of its own on a full machine, which
		# this shell makes it.
		quota_stands || fail "side work has no quota: '$(cat $ROOT/$SIDE/cpu.max)'"
	done
done
same "the agent" "$(agent)" "$first"
for _round in 1 2 3; do
	rmdir $ROOT/other
	until_true 10 sh -c '[ "$(tidegate status --json | grep -c "cgroup:/other")" = 0 ]' || fail "the gate outlived its group"
	mkdir $ROOT/other
	tidegate set cgroup:/other class=side >/dev/null
done
tidegate unset cgroup:/other >/dev/null
measure groups $made groups
gone_soon $side
rmdir $ROOT/other
