#!/bin/bash
# What the owner costs on this machine, as root: its CPU and its memory over SECONDS_EACH (20) with one side gate at work,
# first beside GROUPS_FEW (1), then beside GROUPS_MANY (500) other cgroups with a process in each, and then with GATES (100) side
# gates. Read from /proc, not from the owner's own account.
set -eu

cd "$(dirname "$0")/.."
tidegate=${TIDEGATE:-$PWD/target/release/tidegate}
seconds=${SECONDS_EACH:-20}
dir=$(mktemp -d /dev/shm/tidegate-cost.XXXXXX)
export TIDEGATE_RUN_DIR=$dir/run TIDEGATE_PREFIX=tgcost-$$
if [ -e /sys/fs/cgroup/cpu/cpu.shares ]; then tree=/sys/fs/cgroup/cpu; else tree=/sys/fs/cgroup; fi
others=$tree/tgcost-others-$$
pids=()

finish() {
	# Disowned: bash would report each.
	disown -a
	kill -9 "${pids[@]}" 2>/dev/null || true
	"$tidegate" stop >/dev/null 2>&1 || true
	sleep 0.5
	find "$others" -mindepth 1 -depth -type d -exec rmdir {} \; 2>/dev/null || true
	rmdir "$others" 2>/dev/null || true
	sleep 3
	"$tidegate" repair >/dev/null 2>&1 || true
	rm -rf "$dir"
}
trap finish EXIT

# spent PID: ns of CPU of all its threads.
spent() {
	cat /proc/"$1"/task/*/schedstat | awk '{ sum += $1 } END { printf "%d", sum }'
}

owner() {
	"$tidegate" status --json | sed -n 's/^  "pid": \([0-9]*\),$/\1/p' | head -1
}

measure() {
	local pid before after
	pid=$(owner)
	sleep 3
	before=$(spent "$pid")
	sleep "$seconds"
	after=$(spent "$pid")
	awk -v ns=$((after - before)) -v s="$seconds" -v what="$1" \
		-v kb="$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$pid/status")" \
		'BEGIN { printf "%-44s %5.2f %% of one CPU, %5.1f MB\n", what, ns / s / 1e7, kb / 1024 }'
}

grow() { # grow N: N groups with a sleeper in each
	mkdir -p "$others"
	for nth in $(seq "$1"); do
		mkdir -p "$others/$nth"
		[ -s "$others/$nth/cgroup.procs" ] && continue
		sleep 3600 &
		pids+=($!)
		echo $! >"$others/$nth/cgroup.procs"
	done
}

"$tidegate" run --side --quiet --name worker -- sh -c 'while :; do :; done' &
pids+=($!)
sleep 1
grow "${GROUPS_FEW:-1}"
measure "one side gate, ${GROUPS_FEW:-1} other group"
grow "${GROUPS_MANY:-500}"
measure "one side gate, ${GROUPS_MANY:-500} other groups"
for _ in $(seq "${GATES:-100}"); do
	"$tidegate" run --side --quiet -- sleep 3600 &
	pids+=($!)
done
sleep 5
measure "$((1 + ${GATES:-100})) side gates, ${GROUPS_MANY:-500} other groups"
