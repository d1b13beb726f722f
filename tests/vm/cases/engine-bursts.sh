# what: a main of bursts beside side work, hogs and fresh ones, on 2 and 4 CPUs: when each burst is done
# modes: wide
# kernels: 6.18 7.3
# tier: long
# needs: tidegate
# seconds: 400
group main
group idle
echo 1 >$ROOT/idle/cpu.idle

# in_arm ARM COMMAND...: runs it as that arm's side work, in the background; its process is $!.
in_arm() {
	_arm=$1
	shift
	if [ "$_arm" = idle ]; then
		into idle "$@" &
	else
		tidegate run -q --side -- "$@" &
	fi
	pids="$pids $!"
}

# bursts ARM SIDE: a main that works for so many ms of each five times that.
bursts() {
	for ms in ${BURSTS:-1 6 12}; do
		SEEN=$(inside main vmtool wake 3 $((ms * 4000)) $((ms * 1000)))
		echo "$(nproc) CPUs, $1, $ms ms, $2: done p50 $(of done_p50_us) p99 $(of done_p99_us) us; late $(of done_late) of $(of wakes)"
		measure "$(nproc)_$1_$2_${ms}_p99" "$(of done_p99_us)" us
		measure "$(nproc)_$1_$2_${ms}_late" "$(of done_late)" bursts
	done
}

# with_cpus NUMBER...
with_cpus() {
	cpus "$@"
	bursts alone none
	for side in hogs fresh; do
		for arm in idle tidegate; do
			pids=
			if [ $side = hogs ]; then
				for n in $(seq "$(nproc)"); do in_arm $arm vmtool burn; done
			else
				for n in $(seq $(($(nproc) * 2))); do in_arm $arm vmtool duty 40 5000; done
			fi
			sleep 2
			bursts $arm $side
			[ $arm = idle ] || tidegate status
			# shellcheck disable=SC2086 # a list of words
			finish $pids
		done
	done
}


with_cpus 4
