# what: the agent is killed after every twelfth of its changes to files, from another one each day: side stays held, nothing is left
# modes: precise
# kernels: 6.18
# seconds: 300

values() { cat $ROOT/other/cpu.max $ROOT/other/cpu.weight $ROOT/other/cpu.idle $ROOT/other/cpu.max.burst | tr '\n' ' '; }

# What must hold whenever anybody looks, whoever is dead.
look() {
	if in_gate $job $SIDE; then held || fail "change $1, $2: side is not held"; fi
	if [ -d $ROOT/$MAIN ]; then same "change $1, $2: main's limit" "$(cut -d' ' -f1 $ROOT/$MAIN/cpu.max)" max; fi
}

ended() {
	tidegate agent stop >/dev/null 2>&1 || true
	tidegate agent repair >/dev/null 2>&1 && gone
}

start_job() {
	tidegate run --side --headroom 20% --quiet --name job -- sleep 10000 2>/dev/null &
	job=$!
}
started() { ! alive $job || in_gate $job $SIDE; }

# life N: everything is asked once; the agent dies after its Nth change.
life() {
	export TIDEGATE_FAULT=agent:$1:kill:/tmp/mark-$1
	sleep 10000 &
	lent=$!
	mkdir $ROOT/other
	fresh=$(values)
	home=$(cgroup_of $lent)
	start_job
	# Who started an agent that died of its start is told, and may ask again.
	until_true 20 started || fail "change $1: the command is in '$(cgroup_of $job)'"
	alive $job || { start_job; until_true 20 in_gate $job $SIDE || fail "change $1: the command did not start"; }
	look $1 run
	for words in "set pid:$lent class=side headroom=20% fallback=restore" "set cgroup:/other class=side headroom=20%" "run --main -- true" \
		"set cgroup:/other class=main" "unset cgroup:/other" "unset pid:$lent"; do
		tidegate $words >/dev/null 2>&1 || true
		look $1 "$words"
	done
	unset TIDEGATE_FAULT
	finish $job
	until_true 20 ended || fail "change $1: left behind: '$(ls -d $ROOT/tidegate-* 2>/dev/null | tr '\n' ' ')', '$(ours)'"
	same "change $1: the group's values" "$(values)" "$fresh"
	same "change $1: the process's group" "$(cgroup_of $lent)" "$home"
	same "change $1: files left" "$(ls /run/tidegate | grep -e '^ledger.json$' -e '^gates.json$' || true)" ""
	finish $lent
	rmdir $ROOT/other
}

# All of them take ten minutes here; the host's tests (crates/tidegate/tests/all/boundaries.rs) meet
# every one each time.
step=12
nth=$(($(date +%j | sed 's/^0*//') % step))
until [ -n "${over:-}" ]; do
	life $nth
	[ -e /tmp/mark-$nth ] || over=yes
	nth=$((nth + step))
done
deaths=$(ls /tmp/mark-* | wc -l)
[ "$deaths" -ge 4 ] || fail "only $deaths changes were met"
measure deaths "$deaths" faults
