# what: bursts of main three groups down beside fresh side work: two in a hundred are late
# modes: wide
# tier: long
# seconds: 300
group main idle
echo 1 >$ROOT/idle/cpu.idle
mkdir -p $ROOT/main/a/b
echo +cpu >$ROOT/main/cgroup.subtree_control
echo +cpu >$ROOT/main/a/cgroup.subtree_control
cpus 4

bursts() {
	bursts_of main/a/b 6
	bursts_seen "$1" "$1"
}

bursts alone
for arm in idle tidegate; do
	[ $arm = idle ] && how="into idle" || how="tidegate run -q --side --"
	# shellcheck disable=SC2086 # a list of words
	side_work fresh $how
	bursts $arm
	side_work_over
done
few_are_late "three groups down"
none_has_many_late
