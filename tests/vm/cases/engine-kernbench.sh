# what: a build by make -j8 with a cap that never binds, and with a soft cap of nothing, takes as long as without Tidegate, by either engine
# modes: wide
# kernels: 6.18
# tier: long
# needs: make cc1
# seconds: 1800
command -v cc1 >/dev/null && command -v make >/dev/null || skip "this machine has no make or cc1"
cpus 2
sources /tmp/build 40 2

# children: user and system time of what this shell has waited for, in s, into $SEEN; a subshell has
# its own.
children() {
	times >/tmp/times
	SEEN=$(awk -F'[ms ]+' 'NR == 2 { print $1 * 60 + $2, $3 * 60 + $4 }' /tmp/times)
}

# built ARM WORDS...: the median of three builds by WORDS make.
built() {
	_arm=$1
	shift
	for round in 1 2 3; do
		_switches=$(awk '/^ctxt/ { print $2 }' /proc/stat)
		children
		_before=$SEEN
		now
		_began=$NOW
		"$@" make -s -C /tmp/build -B -j8 || fail "a build of $_arm ended with $?"
		now
		_switches=$(($(awk '/^ctxt/ { print $2 }' /proc/stat) - _switches))
		children
		echo "$((NOW - _began)) $_before $SEEN $_switches"
	done >/tmp/built
	sort -n /tmp/built | awk 'NR == 2 { printf "took=%.2f user=%.2f system=%.2f switches=%d\n", $1 / 100, $4 - $2, $5 - $3, $6 }' >/tmp/median
	SEEN=$(cat /tmp/median)
	echo "$_arm: $SEEN"
	measure "${_arm}_took" "$(of took)" s
	measure "${_arm}_switches" "$(of switches)" switches
}

built plain
PLAIN=$(of took)
for engine in cgroup sched_ext; do
	tidegate agent run --engine $engine >/tmp/agent 2>&1 &
	AGENT=$!
	# BPF runs at each switch.
	most=1.03
	[ $engine = cgroup ] || most=1.08
	if [ $engine = sched_ext ]; then agent_ext_on $AGENT; else until_true 20 tidegate status >/dev/null 2>&1; fi
	built ${engine}_unused tidegate run -q --cap-hard 64cpu --
	within "$engine, a cap that never binds" "$(of took)" 0 "$(awk -v s="$PLAIN" -v m=$most 'BEGIN { print m * s }')"
	built ${engine}_soft tidegate run -q --cap-soft 0cpu --
	within "$engine, a soft cap of nothing" "$(of took)" 0 "$(awk -v s="$PLAIN" -v m=$most 'BEGIN { print m * s }')"
	tidegate agent stop
	wait $AGENT
done
