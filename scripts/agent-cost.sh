#!/bin/bash
# What the agent costs on this machine, as root: its CPU and its memory over SECONDS_EACH (10) at
# each of POINTS (1 50 500 5000), first with one side gate at work beside so many other cgroups with
# a process in each, then with so many side gates beside GROUPS_BESIDE (500) others. Read from
# /proc, not from the agent's own account. CSV=FILE keeps the figures.
# About four minutes; ends with how many of its groups are left, which must be none.
set -eu

cd "$(dirname "$0")/.."
tidegate=${TIDEGATE:-$PWD/target/release/tidegate}
seconds=${SECONDS_EACH:-10}
read -ra points <<<"${POINTS:-1 50 500 5000}"
csv=${CSV:-/dev/null}
dir=$(mktemp -d /dev/shm/tidegate-cost.XXXXXX)
export TIDEGATE_RUN_DIR=$dir/run TIDEGATE_PREFIX=tgcost-$$ TIDEGATE_LOG=warn
if [ -e /sys/fs/cgroup/cpu/cpu.shares ]; then tree=/sys/fs/cgroup/cpu; else tree=/sys/fs/cgroup; fi
others=$tree/tgcost-others-$$
side=$tree/$TIDEGATE_PREFIX-side
pids=()
other_pids=()

# in_groups DIR: processes below it.
in_groups() {
	find "$1" -mindepth 2 -name cgroup.procs -exec cat {} + 2>/dev/null | wc -l
}

# until_few DIR N: until no more than N processes are below it, a minute at most.
until_few() {
	local _
	for _ in $(seq 300); do
		[ "$(in_groups "$1")" -le "$2" ] && return
		sleep 0.2
	done
}

shrink() { # shrink N: all but the first N of the others go
	kill -9 "${other_pids[@]:$1}" 2>/dev/null || true
	wait "${other_pids[@]:$1}" 2>/dev/null || true
	other_pids=("${other_pids[@]:0:$1}")
	find "$others" -mindepth 1 -maxdepth 1 -type d 2>/dev/null | while read -r group; do
		[ "${group##*/}" -le "$1" ] || rmdir "$group" || true
	done
}

finish() {
	local left
	set +e
	# Disowned: bash would report each.
	disown -a
	shrink 0
	rmdir "$others" 2>/dev/null
	# Killed side commands have the tolerance to die on, which takes long on a full machine: so the
	# worker gets more for all.
	"$tidegate" set gate:worker tolerance=50% >/dev/null
	kill -9 "${pids[@]:1}" 2>/dev/null
	until_few "$side" 1
	kill -9 "${pids[0]}" 2>/dev/null
	until_few "$side" 0
	"$tidegate" agent stop >/dev/null 2>&1
	"$tidegate" agent repair >/dev/null
	left=$(find /sys/fs/cgroup -type d -name "tgcost-*$$*" | wc -l)
	rm -rf "$dir"
	echo "$left groups are left behind"
	[ "$left" -eq 0 ] || exit 1
}
trap finish EXIT

# spent PID: ns of CPU of all its threads.
spent() {
	cat /proc/"$1"/task/*/schedstat | awk '{ sum += $1 } END { printf "%d", sum }'
}

agent() {
	"$tidegate" status --json | sed -n 's/^  "pid": \([0-9]*\),$/\1/p' | head -1
}

measure() { # measure WHAT COUNT TEXT
	local pid before after
	pid=$(agent)
	sleep 3
	before=$(spent "$pid")
	sleep "$seconds"
	after=$(spent "$pid")
	awk -v ns=$((after - before)) -v s="$seconds" -v what="$1" -v count="$2" -v text="$3" -v csv="$csv" \
		-v kb="$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$pid/status")" 'BEGIN {
			printf "%-44s %5.2f %% of one CPU, %5.1f MB\n", text, ns / s / 1e7, kb / 1024
			printf "%s,%d,%.3f,%.1f\n", what, count, ns / s / 1e7, kb / 1024 >> csv
		}'
}

grow() { # grow N: N others with a sleeper in each
	local nth
	mkdir -p "$others"
	for nth in $(seq $((${#other_pids[@]} + 1)) "$1"); do
		mkdir -p "$others/$nth"
		sleep 3600 &
		other_pids+=($!)
		echo $! >"$others/$nth/cgroup.procs"
	done
}

gates() { # gates N: one that works and so many sleepers
	local began=$SECONDS
	while [ ${#pids[@]} -le "$1" ]; do
		"$tidegate" run --side --quiet -- sleep 3600 &
		pids+=($!)
		# No more callers at once than a machine has.
		[ $((${#pids[@]} % 50)) -ne 0 ] || until_gates ${#pids[@]}
	done
	until_gates ${#pids[@]}
	[ $((SECONDS - began)) -lt 5 ] || echo "($1 gates were set up in $((SECONDS - began)) s)"
}

until_gates() { # until_gates N: so many have their group
	local _
	for _ in $(seq 600); do
		[ "$(find "$side" -mindepth 1 -maxdepth 1 -type d | wc -l)" -lt "$1" ] || return 0
		sleep 0.1
	done
	echo "tidegate: cost: $1 gates: not there after a minute; see $dir/run/agent.log" >&2
	exit 1
}

[ "$csv" = /dev/null ] || echo "what,count,cpu_pct,memory_mb" >"$csv"
"$tidegate" run --side --quiet --name worker -- sh -c 'while :; do :; done' &
pids+=($!)
sleep 1
for count in "${points[@]}"; do
	grow "$count"
	measure groups "$count" "one side gate, $count other groups"
done
shrink "${GROUPS_BESIDE:-500}"
grow "${GROUPS_BESIDE:-500}"
for count in "${points[@]}"; do
	gates "$count"
	measure gates "$count" "$((1 + count)) side gates, ${GROUPS_BESIDE:-500} other groups"
done
