#!/bin/bash
# Main waits for a file lock that limited side work holds: how long, by how side work is limited.
#
# Usage: sudo scripts/inversion.sh TIDEGATE [SECONDS] [HOGS]
#
# Side work takes a flock, works some milliseconds with it and lets it go, again and again, with hogs beside it in its
# group. Main takes the same lock ten times a second. HOGS (0) busy loops of main's own fill the machine. Needs root and a
# cpu controller, v1 or v2, that may be written; makes and removes the group tidegate-inversion.
set -u
tidegate=${1:?usage: sudo scripts/inversion.sh TIDEGATE [SECONDS] [HOGS]}
seconds=${2:-10}
hogs=${3:-0}
work=$(mktemp -d)
lock=$work/lock
started=()

if [ -d /sys/fs/cgroup/cpu ]; then
	group=/sys/fs/cgroup/cpu/tidegate-inversion
	limit() { echo 100000 >"$group/cpu.cfs_period_us" && echo "$1" >"$group/cpu.cfs_quota_us"; }
else
	group=/sys/fs/cgroup/tidegate-inversion
	limit() { echo "$1 100000" >"$group/cpu.max"; }
fi

finish() {
	for pid in "${started[@]}"; do kill "$pid" 2>/dev/null; done
	[ ! -d "$group" ] || { stop '' ; rmdir "$group"; }
	rm -r "$work"
}
trap finish EXIT

# One loop that takes the lock, and two that want all CPU. They end with the shell that is killed.
cat >"$work/side" <<'SIDE'
trap 'kill $(jobs -p) 2>/dev/null; exit' TERM
(while :; do :; done) &
(while :; do :; done) &
exec 9>"$1"
while :; do
	flock 9
	for ((i = 0; i < 5000; i++)); do :; done
	flock -u 9
	sleep 0.01
done
SIDE

# Prints: waits, median, the worst but one in a hundred, worst, in milliseconds.
measure() {
	local end=$((SECONDS + seconds)) from to
	exec 8>"$lock"
	while [ $SECONDS -lt $end ]; do
		from=${EPOCHREALTIME/./}
		flock 8
		to=${EPOCHREALTIME/./}
		flock -u 8
		echo $((to - from))
		sleep 0.1
	done | sort -n | awk -v arm="$1" '{ us[NR] = $1 }
		END { printf "%-28s %5d waits  p50 %8.1f ms  p99 %8.1f ms  worst %8.1f ms\n",
			arm, NR, us[int((NR + 1) / 2)] / 1000, us[int(NR * 0.99 + 0.5)] / 1000, us[NR] / 1000 }'
	exec 8>&-
}

# Ends a shell that started children, and them, and waits until its group is empty.
stop() {
	kill "$1" 2>/dev/null
	[ ! -d "$group" ] && { wait "$1" 2>/dev/null; return; }
	[ ! -e "$group/cpu.idle" ] || echo 0 >"$group/cpu.idle"
	for ((try = 0; try < 100; try++)); do
		mapfile -t left <"$group/cgroup.procs"
		[ ${#left[@]} = 0 ] && return
		kill -9 "${left[@]}" 2>/dev/null
		sleep 0.1
	done
}

# arm NAME IDLE QUOTA_US
arm() {
	mkdir "$group" || exit 1
	[ "$2" = 0 ] || echo 1 >"$group/cpu.idle"
	[ "$3" = 0 ] || limit "$3"
	(echo $BASHPID >"$group/cgroup.procs" && exec bash "$work/side" "$lock") &
	started+=($!)
	sleep 1
	measure "$1"
	[ "$3" = 0 ] || limit -1 2>/dev/null || limit max
	stop $!
	rmdir "$group"
}

for ((hog = 0; hog < hogs; hog++)); do
	(while :; do :; done) &
	started+=($!)
done
: >"$lock"
measure "no side work"
arm "no limit" 0 0
arm "cpu.idle" 1 0
arm "cpu.idle, 2 ms in 100 ms" 1 2000
"$tidegate" run --side --name inversion -- bash "$work/side" "$lock" &
started+=($!)
sleep 3
measure "tidegate run --side"
stop $!
