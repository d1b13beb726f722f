#!/bin/bash
# Hours of faults and stress on this machine, as root: gates come and go while owner, guardian and commands are killed and
# frozen at random, and after each fault the failure contract is read from the kernel's files. Ends with one line;
# everything that it makes is in a run directory and under a cgroup prefix of its own.
#
#   HOURS=2 scripts/soak.sh          SEED=7 repeats a run's choices (not its timing)
set -u

cd "$(dirname "$0")/.." || exit 1
tidegate=${TIDEGATE:-$PWD/target/release/tidegate}
seconds=${SECONDS_TOTAL:-$(awk "BEGIN { print int(${HOURS:-2} * 3600) }")}
seed=${SEED:-$$}
RANDOM=$seed

if [ "$(id -u)" -ne 0 ] || ! "$tidegate" doctor >/dev/null 2>&1; then
	"$tidegate" doctor | tail -1
	echo "tidegate: soak: headroom cannot be enforced here; run it as root where doctor says yes" >&2
	exit 1
fi

dir=$(mktemp -d /tmp/tidegate-soak.XXXXXX)
export TIDEGATE_RUN_DIR=$dir/run TIDEGATE_PREFIX=tgsoak-$$
# Longer than the lease (2 s) and a restart.
patience=10
steps=0 faults=0 failures=0
declare -A sides=() others=()

# bandwidth: the side root's quota and period in us; nothing when it has none.
if [ -e /sys/fs/cgroup/cpu/cpu.shares ]; then
	root=/sys/fs/cgroup/cpu/$TIDEGATE_PREFIX-side
	bandwidth() { cat "$root/cpu.cfs_quota_us" "$root/cpu.cfs_period_us" 2>/dev/null | paste -sd ' ' | grep -v '^-1'; }
else
	root=/sys/fs/cgroup/$TIDEGATE_PREFIX-side
	bandwidth() { grep -v '^max' "$root/cpu.max" 2>/dev/null; }
fi

# Limited, and yielding or at the tolerance (1 % of the machine): there side work leaves the idle class, so that it gets it.
bounded() {
	local quota period idle
	read -r quota period <<<"$(bandwidth)"
	idle=$(cat "$root/cpu.idle" 2>/dev/null || echo 1)
	[ -n "$quota" ] && { [ "$idle" = 1 ] || [ $((quota * 1000)) -le $((period * 11 * $(nproc))) ]; }
}

note() {
	echo "$(date -u +%H:%M:%S.%3N) step $steps: $*" >>"$dir/soak.log"
}

fail() {
	failures=$((failures + 1))
	echo "step $steps: $*" >&2
	note "FAILED: $*"
}

below() { # below N: a number from 0 to N-1
	echo $((RANDOM % $1))
}

owner() {
	pgrep -f "^$tidegate agent" | while read -r pid; do
		grep -qz "^TIDEGATE_PREFIX=$TIDEGATE_PREFIX$" "/proc/$pid/environ" 2>/dev/null && echo "$pid"
	done
}

guardian() {
	pgrep -f "^$tidegate guardian" | while read -r pid; do
		grep -qz "^TIDEGATE_PREFIX=$TIDEGATE_PREFIX$" "/proc/$pid/environ" 2>/dev/null && echo "$pid"
	done
}

# Forgets commands that ended by themselves; one that is gone before its time was lost.
reap() {
	local pid now
	now=$(date +%s)
	for pid in "${!sides[@]}"; do
		if ! kill -0 "$pid" 2>/dev/null; then
			[ "$now" -ge "${sides[$pid]}" ] || fail "side command $pid was lost"
			unset "sides[$pid]"
		fi
	done
	for pid in "${!others[@]}"; do
		kill -0 "$pid" 2>/dev/null || unset "others[$pid]"
	done
}

# The contract, as the kernel has it: side work that runs is in the idle class and limited, whoever is dead.
holds() {
	local pid
	for pid in "${!sides[@]}"; do
		kill -0 "$pid" 2>/dev/null || continue
		grep -q "$TIDEGATE_PREFIX-side" "/proc/$pid/cgroup" 2>/dev/null || continue
		bounded && return 0
		# It may have ended between the looks.
		kill -0 "$pid" 2>/dev/null || continue
		return 1
	done
	return 0
}

settle() {
	local until=$((SECONDS + patience))
	until holds; do
		if [ $SECONDS -ge $until ]; then
			fail "side work runs without a limit after $1: cpu.idle $(cat "$root/cpu.idle"), quota and period $(bandwidth)"
			return
		fi
		sleep 0.1
	done
}

start_side() {
	local life=$((3 + $(below 20)))
	"$tidegate" run --side --quiet --headroom $((10 + $(below 50)))% -- \
		timeout "$life" sh -c 'while :; do :; done' &
	# It ends with its time, not before; a second for the clock's grain.
	note "side $! for $life s"
	sides[$!]=$(($(date +%s) + life - 1))
}

start_main() {
	"$tidegate" run --main --quiet --headroom $((10 + $(below 50)))% -- timeout $((2 + $(below 10))) sh -c 'while :; do :; done' &
	others[$!]=1
}

set_and_unset() {
	local before pid
	sleep 30 &
	pid=$!
	before=$(cat /proc/$pid/cgroup)
	note "set and unset $pid"
	"$tidegate" set "pid:$pid" class=side >/dev/null && sleep 0.$(below 10) &&
		"$tidegate" unset "pid:$pid" >/dev/null
	[ "$(cat /proc/$pid/cgroup)" = "$before" ] || fail "process $pid did not come back to its groups"
	kill $pid 2>/dev/null
	wait $pid 2>/dev/null
}

fault() {
	faults=$((faults + 1))
	note "fault $1"
	case $1 in
	owner) kill -KILL $(owner) 2>/dev/null ;;
	guardian) kill -KILL $(guardian) 2>/dev/null ;;
	both) kill -KILL $(owner) $(guardian) 2>/dev/null ;;
	freeze)
		local pid
		pid=$(owner)
		[ -n "$pid" ] || return
		kill -STOP $pid 2>/dev/null
		sleep 3
		settle freeze
		kill -CONT $pid 2>/dev/null
		;;
	esac
	settle "$1"
}

# After owner and guardian died together nobody restarts them: the next call does.
answers() {
	[ "${#sides[@]}" -gt 0 ] || return 0
	local until=$((SECONDS + patience))
	until "$tidegate" status >/dev/null 2>&1; do
		[ $SECONDS -lt $until ] || { "$tidegate" run --side --quiet -- true || fail "no owner could be started"; return; }
		sleep 0.2
	done
}

cleanup() {
	kill "${!sides[@]}" "${!others[@]}" 2>/dev/null
	wait 2>/dev/null
	"$tidegate" stop >/dev/null 2>&1
	"$tidegate" repair >/dev/null 2>&1
	sleep 1
	if find /sys/fs/cgroup -maxdepth 3 -name "$TIDEGATE_PREFIX*" 2>/dev/null | grep .; then
		fail "groups are left behind"
	fi
	if [ $failures -eq 0 ]; then rm -rf "$dir"; else echo "soak: logs of steps and owner are kept in $dir"; fi
	echo "soak: seed $seed, $steps steps, $faults faults, $failures failures"
}
trap 'exit 130' INT TERM
trap 'cleanup; [ $failures -eq 0 ] || exit 1' EXIT

echo "soak: $seconds s, seed $seed, in $dir"
while [ $SECONDS -lt "$seconds" ]; do
	steps=$((steps + 1))
	reap
	case $(below 12) in
	0 | 1 | 2) [ "${#sides[@]}" -ge 6 ] || start_side ;;
	3) [ "${#others[@]}" -ge 2 ] || start_main ;;
	4) set_and_unset ;;
	5) fault owner ;;
	6) fault guardian ;;
	7) fault both ;;
	8) fault freeze ;;
	9) "$tidegate" status >/dev/null 2>&1 || answers ;;
	*) sleep 0.$(below 10) ;;
	esac
	answers
	holds || settle "step"
done
