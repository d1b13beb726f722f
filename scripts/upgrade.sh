#!/bin/bash
# Two builds of tidegate after one another, as at an upgrade and its undoing: each takes over what
# the other left, and no look from outside finds a gate without its limits. Usage, as root:
# scripts/upgrade.sh OLD [NEW], two commands (NEW: target/release/tidegate).
set -eu
old=$(realpath "$1")
new=$(realpath "${2:-target/release/tidegate}")
[ "$(id -u)" = 0 ] || { echo "upgrade: run as root: it starts agents" >&2; exit 2; }
dir=$(mktemp -d /dev/shm/upgrade.XXXXXX)
export TIDEGATE_RUN_DIR=$dir/run TIDEGATE_PREFIX=upgrade-$$
mount=/sys/fs/cgroup/cpu
quota=cpu.cfs_quota_us
[ -d $mount ] || mount=/sys/fs/cgroup quota=cpu.max
other=other-$TIDEGATE_PREFIX
mkdir "$mount/$other"
sleep 98764 &
work=$!
echo $work >"$mount/$other/cgroup.procs"

# of KIND: the processes of this instance that are an agent or a guardian.
of() {
	local pid
	for pid in $(pgrep -f "tidegate $1 --"); do
		{ tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "TIDEGATE_PREFIX=$TIDEGATE_PREFIX"; } 2>/dev/null && echo "$pid"
	done
	true
}
finish() {
	touch "$dir/enough"
	kill $work $(jobs -p) 2>/dev/null
	"$new" agent stop >/dev/null 2>&1 || true
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		sleep 0.3
		"$new" agent repair >/dev/null 2>&1 && rmdir "$mount/$other" 2>/dev/null && break
	done
	rm -rf "$dir"
}
trap finish EXIT

# Side work of `run` and a group of another program, as seen from outside.
limited() {
	local group
	for group in "$other" "$TIDEGATE_PREFIX-side"; do
		case $(cut -d' ' -f1 <"$mount/$group/$quota" 2>/dev/null) in -1 | max | "") return 1 ;; esac
	done
}
watch() {
	while [ ! -e "$dir/enough" ]; do
		limited || cat "$mount/$other/$quota" "$mount/$TIDEGATE_PREFIX-side/$quota" >>"$dir/unlimited"
		echo >>"$dir/looks"
		sleep 0.01
	done
}
gates() { "$1" show --json | grep -c '"class": "side"'; }

"$old" run --side --quiet --name job --tolerance 3% -- sleep 98764 &
until "$old" status job >/dev/null 2>&1; do sleep 0.1; done
"$old" set "cgroup:/$other" class=side >/dev/null
watch &
for way in "$new" "$old" "$new"; do
	# The guardian first: it would start another agent of its own version.
	kill -9 $(of guardian) $(of agent)
	sleep 0.2
	# It starts its agent, which takes up what it finds.
	"$way" run --main --quiet --name "probe$RANDOM" -- true
	runs=$(readlink "/proc/$("$way" status --json | sed -n 's/^  "pid": \([0-9]*\).*/\1/p')/exe")
	[ "$runs" = "$way" ] || { echo "upgrade: $runs is in control, not $way" >&2; exit 1; }
	[ "$(gates "$way")" = 2 ] || { echo "upgrade: $way: not both gates: $("$way" show)" >&2; exit 1; }
	"$way" show job --json | grep -q '3%' || { echo "upgrade: $way: the gate lost a term" >&2; exit 1; }
	echo "$way: took over 2 gates"
	sleep 1
done
touch "$dir/enough"
[ ! -e "$dir/unlimited" ] || { echo "upgrade: without limits: $(sort "$dir/unlimited" | uniq -c)" >&2; exit 1; }
looks=$(wc -l <"$dir/looks")
[ "$looks" -ge 100 ] || { echo "upgrade: looked only $looks times" >&2; exit 1; }
echo "upgrade: looked $looks times, always limited"
