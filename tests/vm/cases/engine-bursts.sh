# what: main's bursts beside side work, endless and fresh and under quotas, on 1 to 8 CPUs: two in a hundred are late
# modes: wide
# tier: long
# seconds: 1200
group main idle
echo 1 >$ROOT/idle/cpu.idle

# bursts ARM KIND MS...: a main that works for MS of each five times that.
bursts() {
	_arm=$1
	_kind=$2
	shift 2
	for ms in "$@"; do
		bursts_of main "$ms"
		bursts_seen "$(nproc)_${_arm}_${_kind}_$ms" "$(nproc) CPUs, $_arm, $ms ms, $_kind"
		[ $_arm != tidegate ] || few_are_late "$(nproc) CPUs, bursts of $ms ms beside $_kind"
	done
}

# beside KIND MS...: side work of a KIND that ends in ms is under a quota of half a CPU each, of
# that period.
beside() {
	_of=$1
	shift
	for arm in idle tidegate; do
		case $arm-$_of in
		idle-*ms) continue ;;
		idle-*) _how="into idle" ;;
		*ms) _how="tidegate run -q --side --name limited --join --quota $(($(nproc) * ${_of%ms} / 2))ms --period $_of --" ;;
		*) _how="tidegate run -q --side --" ;;
		esac
		# shellcheck disable=SC2086 # a list of words
		side_work "$_of" $_how
		bursts $arm "$_of" "$@"
		side_work_over
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
none_has_many_late
