# what: bursts of main three groups down beside fresh side work: two in a hundred are late
# modes: wide
# kernels: 6.18 7.3
# tier: long
# needs: tidegate
# seconds: 300
group main
group idle
echo 1 >$ROOT/idle/cpu.idle
mkdir -p $ROOT/main/a/b
echo +cpu >$ROOT/main/cgroup.subtree_control
echo +cpu >$ROOT/main/a/cgroup.subtree_control
cpus 4

bursts() {
	SEEN=$(inside main/a/b vmtool wake 6 24000 6000)
	echo "$1: p50 $(of done_p50_us) p99 $(of done_p99_us); late $(of done_late) of $(of wakes)"
	measure "$1_p99" "$(of done_p99_us)" us
	measure "$1_late" "$(of done_late)" bursts
}

bursts alone
for arm in idle tidegate; do
	[ $arm = idle ] && how="into idle" || how="tidegate run -q --side --"
	pids=
	for n in 1 2 3 4; do
		# shellcheck disable=SC2086 # a list of words
		$how vmtool duty 40 5000 &
		pids="$pids $!"
	done
	sleep 2
	bursts $arm
	# shellcheck disable=SC2086 # a list of words
	finish $pids
done
[ "$(($(of done_late) * 50))" -le "$(of wakes)" ] || fail "$(of done_late) of $(of wakes) are late"
