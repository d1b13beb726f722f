#!/bin/bash
# Main waits for a lock that limited side work holds: how long, by how side work is limited.
#
# Usage: sudo scripts/inversion.sh TIDEGATE [SECONDS] [HOGS] [KIND...]
#
# Side work takes the lock, works 2 ms of CPU with it, rests 4 ms, and again, with two hogs beside it in its group. Main comes just
# after the lock was taken (it looks each 0.5 ms) and waits; then it rests 50 ms. HOGS (0) busy loops of main's own fill the machine.
# KIND is flock, fcntl, ofd, futex, pi (a mutex with priority inheritance) or pipe (a byte in a pipe); flock, fcntl and futex if none
# is named. Needs root, a C compiler and a cpu controller, v1 or v2, that may be written; makes and removes the group
# tidegate-inversion, and has an agent of its own. Prints waits, mean, median, 99th percentile and worst, and what side work used.
set -u
tidegate=${1:?usage: sudo scripts/inversion.sh TIDEGATE [SECONDS] [HOGS] [KIND...]}
seconds=${2:-10}
hogs=${3:-0}
shift $(($# < 3 ? $# : 3))
[ $# -gt 0 ] || set -- flock fcntl futex
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
chmod 755 "$work"
export TIDEGATE_RUN_DIR=$work/run TIDEGATE_PREFIX=tidegate-inversion
mkdir -m 755 "$TIDEGATE_RUN_DIR"
started=()

if [ -d /sys/fs/cgroup/cpu ]; then
	base=/sys/fs/cgroup/cpu
	limit() { echo 100000 >"$1/cpu.cfs_period_us" && echo "$2" >"$1/cpu.cfs_quota_us"; }
	acct=/sys/fs/cgroup/cpuacct
	used_ms() { awk '{ print int($1 / 1e6) }' "$acct/${1#"$base"/}/cpuacct.usage"; }
else
	base=/sys/fs/cgroup
	acct=$base
	limit() { echo "$2 100000" >"$1/cpu.max"; }
	used_ms() { awk '/^usage_usec/ { print int($2 / 1e3) }' "$1/cpu.stat"; }
fi

# Ends everything in a group and the groups in it.
empty() {
	local try left
	for ((try = 0; try < 100; try++)); do
		left=$(find "$1" -name cgroup.procs -exec cat {} + 2>/dev/null)
		[ -n "$left" ] || return
		# shellcheck disable=SC2086
		kill -9 $left 2>/dev/null
		sleep 0.1
	done
}

finish() {
	for pid in "${started[@]}"; do kill "$pid" 2>/dev/null; done
	for group in "$base/tidegate-inversion-side" "$base/tidegate-inversion"; do empty "$group"; done
	"$tidegate" agent stop >/dev/null 2>&1
	rmdir "$base/tidegate-inversion" "$acct/tidegate-inversion" 2>/dev/null
	rm -r "$work"
}
trap finish EXIT

cc -O2 -pthread -o "$work/vmtool" "$here/tests/vm/vmtool.c" || exit 1
cat >"$work/side" <<SIDE
"$work/vmtool" threads 2 &
exec "$work/vmtool" lock hold "\$1" "$work/lock" 2000 4000
SIDE

# measure ARM KIND GROUP
measure() {
	local before after said
	before=$(used_ms "$3")
	said=$("$work/vmtool" lock wait "$2" "$work/lock" "$seconds" 50000)
	after=$(used_ms "$3")
	printf '%-28s %-6s %s side_used_ms=%d\n' "$1" "$2" "$said" $((after - before))
	rm -f "$work/lock"
}

# bare ARM KIND IDLE QUOTA_US: in a group of its own.
bare() {
	local group=$base/tidegate-inversion
	mkdir -p "$group" "$acct/tidegate-inversion" || exit 1
	[ "$3" = 0 ] || echo 1 >"$group/cpu.idle"
	[ "$4" = 0 ] || limit "$group" "$4"
	(
		me=$BASHPID
		echo "$me" >"$acct/tidegate-inversion/cgroup.procs" && echo "$me" >"$group/cgroup.procs" && exec bash "$work/side" "$2"
	) &
	disown
	sleep 3
	measure "$1" "$2" "$group"
	empty "$group"
	rmdir "$group"
	rmdir "$acct/tidegate-inversion" 2>/dev/null
}

# gated ARM KIND YES|NO
gated() {
	echo "lock_boost = \"$3\"" >"$TIDEGATE_RUN_DIR/tidegate.toml"
	"$tidegate" run --quiet --side --name job -- bash "$work/side" "$2" &
	disown # Killed below: bash would report it.
	sleep 3
	measure "$1" "$2" "$base/tidegate-inversion-side"
	"$tidegate" status --json | tr -d '\n ' | sed 's/.*\("lock_boost":{[^}]*}\).*"agent_cpus":\([0-9.]*\).*/\1 agent \2 CPUs\n/; t; d'
	empty "$base/tidegate-inversion-side"
	"$tidegate" agent stop >/dev/null 2>&1
	sleep 1
}

for ((hog = 0; hog < hogs; hog++)); do
	"$work/vmtool" burn &
	started+=($!)
done
cpus=$(nproc)
for kind; do
	bare "no limit" "$kind" 0 0
	bare "cpu.idle" "$kind" 1 0
	bare "cpu.idle, 1 % in 100 ms" "$kind" 1 $((cpus * 1000))
	gated "tidegate, lock_boost = no" "$kind" no
	gated "tidegate" "$kind" yes
done
