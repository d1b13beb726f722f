# what: bursts of one, two and four mains with random rests beside side work on 2 CPUs: of one, two in a hundred are late
# modes: wide
# tier: long
# seconds: 600
group main other idle
echo 1 >$ROOT/idle/cpu.idle
cpus 4
mount -t debugfs none /sys/kernel/debug 2>/dev/null || :
FEATURES=/sys/kernel/debug/sched/features

# bursts ARM KIND ROW...
bursts() {
	_arm=$1 _kind=$2
	shift 2
	for row in "$@"; do
		_name=$(echo "$row" | tr ' ' _)
		# shellcheck disable=SC2086 # a list of words
		bursts_at_random $row
		bursts_seen "${_arm}_${_kind}_$_name" "$_arm, $_kind, $row"
		# Several mains wait behind each other (docs/decisions/turns.md).
		case $_arm-$row in
		tidegate-?" main" | tidegate-??" main") few_are_late "bursts of $row beside $_kind" ;;
		esac
	done
}

several="6 main other"
many="6 main main main main"
bursts alone none "6 main" "12 main" "$several" "$many"
for kind in hogs fresh; do
	side_work $kind into idle
	bursts idle $kind "6 main" "12 main" "$several" "$many"
	side_work_over
	side_work $kind tidegate run -q --side --
	bursts tidegate $kind "6 main" "12 main" "$several" "$many"
	# The kernel looks for another CPU for a task that wakes, however busy those are.
	if [ -e $FEATURES ]; then
		echo NO_SIS_UTIL >$FEATURES
		bursts no_sis_util $kind "$several" "$many"
		echo SIS_UTIL >$FEATURES
	fi
	side_work_over
done
none_has_many_late
