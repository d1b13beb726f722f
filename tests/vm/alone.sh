# Side work on an otherwise idle machine, on cgroup v2 and v1: for tests that say `. /vm/alone.sh`.

# reading PID...: uptime, how long everything ran (without the threads of the kernel where that
# cannot be told), and how long these ran, in s, ns, ns. By one process: each is a burst of main.
reading() {
	_files=$(printf '/proc/%s/schedstat ' "$@")
	[ -e /tmp/v1/cpuacct.usage ] && _all=/tmp/v1/cpuacct.usage || _all=$(echo $ROOT/*/cpu.stat)
	# shellcheck disable=SC2086 # lists of words
	awk '
		FILENAME ~ /uptime/ { up = $1 }
		FILENAME ~ /cpuacct.usage/ { busy += $1 }
		/^usage_usec/ { busy += 1000 * $2 }
		FILENAME ~ /schedstat/ { ran += $1 }
		END { printf "%.2f %.0f %.0f", up, busy, ran }
	' /proc/uptime $_all $_files
}

# hogs_get_their_due SENSE HEADROOM_PERCENT HOGS [LEAST_PERCENT]: so many gates of side work on an
# otherwise idle machine have, over 20 s, at least 98 % (or LEAST_PERCENT) of the CPU that the
# headroom and everything else leave them, and no alert of unusable samples.
hogs_get_their_due() {
	tidegate agent run --sense "$1" >/tmp/agent 2>&1 &
	_agent=$!
	until_true 20 sh -c 'tidegate status >/dev/null 2>&1' || { cat /tmp/agent; fail "the agent did not start"; }
	_hogs=
	for _n in $(seq "$3"); do
		tidegate run --side --headroom "$2%" -- vmtool burn &
		_hogs="$_hogs $!"
	done
	sleep 5
	# shellcheck disable=SC2086 # a list of words
	_from=$(reading $_hogs)
	sleep 20
	# shellcheck disable=SC2086
	_percent=$(echo "$_from $(reading $_hogs)" | awk -v h="$2" -v n="$3" -v cpus="$(nproc)" '{
		wall = ($4 - $1) * 1e9; ran = $6 - $3; others = $5 - $2 - ran
		left = wall * cpus * (1 - h / 100) - (others > 0 ? others : 0)
		due = n * wall < left ? n * wall : left
		printf "%.2f", 100 * ran / due
	}')
	measure "alone_$1_${2}_$3_of_$(nproc)" "$_percent" %
	tidegate status
	within "what $3 hogs get of their due on $(nproc) CPUs, headroom $2 %, sensing by $1" "$_percent" "${4:-98}" 101
	# More than one a minute is an alert.
	within "unusable samples in the last minute" "$(tidegate status --json | json unusable_samples_last_minute)" 0 1
	# shellcheck disable=SC2086
	finish $_hogs
	finish $_agent
}

# v1_begin: the cpu controllers move to a v1 hierarchy of their own, as on machines that were set up
# long ago.
v1_begin() {
	find $ROOT -depth -name cgroup.subtree_control | while read -r _file; do
		for _name in cpuset cpu; do echo -$_name >"$_file" || true; done
	done 2>/dev/null
	mkdir -p /tmp/v1
	until_true 20 mount -t cgroup -o cpu,cpuacct none /tmp/v1 || fail "no cpu controller on v1"
}

# v1_end: they are v2's again.
v1_end() {
	umount /tmp/v1 || fail "v1's hierarchy stays: $(ls /tmp/v1)"
	until_true 20 sh -c "echo +cpu >$ROOT/cgroup.subtree_control" || fail "v2 does not get the cpu controller back"
}
