# what: main's bursts beside side work, endless and fresh and under quotas, on 1 to 8 CPUs: two in a hundred are late
# modes: wide
# kernels: 6.18 7.3
# tier: long
# needs: tidegate
# seconds: 1200
group main
group idle
echo 1 >$ROOT/idle/cpu.idle

# side_work ARM KIND: on each CPU one task that burns, or two that work 2 ms and rest 3, or the
# first under a quota of half a CPU each, of so many ms.
side_work() {
	case $2 in
	fresh) _tasks=$(($(nproc) * 2)) _work="duty 40 5000" ;;
	*) _tasks=$(nproc) _work=burn ;;
	esac
	case $1-$2 in
	idle-*) _how="into idle" ;;
	*ms) _how="tidegate run -q --side --name limited --join --quota $(($(nproc) * ${2%ms} / 2))ms --period $2 --" ;;
	*) _how="tidegate run -q --side --" ;;
	esac
	pids=
	for n in $(seq "$_tasks"); do
		# shellcheck disable=SC2086 # lists of words
		$_how vmtool $_work &
		pids="$pids $!"
	done
	sleep 2
}

# bursts ARM KIND MS...: a main that works for MS of each four times that.
bursts() {
	_arm=$1
	_kind=$2
	shift 2
	for ms in "$@"; do
		SEEN=$(inside main vmtool wake 4 $((ms * 4000)) $((ms * 1000)))
		echo "$(nproc) CPUs, $_arm, $ms ms, $_kind: p50 $(of done_p50_us) p99 $(of done_p99_us); late $(of done_late) of $(of wakes)"
		measure "$(nproc)_${_arm}_${_kind}_${ms}_p99" "$(of done_p99_us)" us
		measure "$(nproc)_${_arm}_${_kind}_${ms}_late" "$(of done_late)" bursts
		[ $_arm != tidegate ] || [ "$(($(of done_late) * 50))" -le "$(of wakes)" ] ||
			fail "$(nproc) CPUs, bursts of $ms ms beside $_kind: $(of done_late) of $(of wakes) are late"
	done
}

# beside KIND MS...
beside() {
	_of=$1
	shift
	for arm in idle tidegate; do
		case $arm-$_of in idle-*ms) continue ;; esac
		side_work $arm "$_of"
		bursts $arm "$_of" "$@"
		# shellcheck disable=SC2086 # a list of words
		finish $pids
	done
}

cpus 4
bursts alone none 1 3 6 12 20
beside hogs 1 3 6 12 20
beside fresh 1 3 6 12 20
beside 10ms 6 12
beside 100ms 6 12
for on in "" "4 8 12" "2 4 6 8 10 12 14"; do
	# shellcheck disable=SC2086 # a list of words
	cpus $on
	bursts alone none 6
	beside hogs 6
	beside fresh 6
done
