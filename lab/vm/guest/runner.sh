# Runs the listed tests one by one, each in a group of its own that `prepare` makes and `sweep`
# clears, and tells the outside on standard output, the second serial port (lab/vm/src/protocol.rs).

uptime() { cut -d' ' -f1 /proc/uptime; }
frame() { echo "@@tg $(uptime) $*"; }

# The clock is calibrated during the first seconds; nothing measured before that counts.
while [ "$(cut -d. -f1 /proc/uptime)" -lt 3 ]; do sleep 0.2; done
MODE=$(cat /vm/cases/mode)
export MODE HOME_GROUP
frame ready

while read -r TEST LIMIT <&3; do
	export TEST
	frame begin "$TEST"
	prepare
	timeout -s KILL "$LIMIT" sh -c 'echo 0 >"$HOME_GROUP/cgroup.procs"; . /vm/lib.sh; . "/vm/cases/$TEST.sh"' 3<&-
	code=$?
	sweep
	why=$(head -n 1 /tmp/why 2>/dev/null)
	case $code in
	0) frame end "$TEST" ok ;;
	77) frame end "$TEST" skip "${why:-no reason given}" ;;
	137) frame end "$TEST" fail "${why:-hung: killed after $LIMIT s of its time}" ;;
	*) frame end "$TEST" fail "${why:-exit code $code}" ;;
	esac
done 3</vm/cases/list
frame done
