#!/bin/bash
# The failure contract for hours, as root: the injectors of `make test` in their long form, round
# after round, and a table of what was injected how often and what broke; then the sched_ext engine
# under stress in the virtual machine, on both kernels. One round is more than 20,000 faults; a soak
# is at least one. docs/failure-contract.md says what is promised.
#
#   HOURS=2 scripts/soak.sh          VM=no leaves the virtual machine out; KILLS=200 random kills of each kind (50);
#                                    EXT_S=600 seconds of sched-ext-soak a kernel (1800, at most 3600), once;
#                                    EXT_S=0: none; OLD=PATH an earlier build of tidegate, to change to and fro with
#   HOURS=0 scripts/soak.sh          one short round: in memory all faults, on this kernel those of `make test`, no virtual
#                                    machine (VM=yes has it, and a minute of sched-ext-soak a kernel). Each part tells how long it took
set -u

cd "$(dirname "$0")/.." || exit 1
until_s=$(awk "BEGIN { print int(${HOURS:-0} * 3600) }")
logs=target/soak
rounds=0 failures=0
mkdir -p "$logs"
rm -f "$logs"/*.log

if [ "$(id -u)" -ne 0 ]; then
	echo "tidegate: soak: faults are injected into real agents, which need root; run it as root" >&2
	exit 1
fi

# part NAME COMMAND...: one injector, with its own log; a failure shows where to look.
part() {
	local name=$1 log began=$SECONDS
	log=$logs/$name-$rounds.log
	shift
	if "$@" >"$log" 2>&1; then
		echo "round $rounds: $name: passed in $((SECONDS - began)) s"
	else
		failures=$((failures + 1))
		echo "round $rounds: $name: FAILED; see $log"
		grep -e '^test .*FAILED' -e 'panicked at' "$log" | head -5
	fi
}

round() {
	local test
	export TIDEGATE_FAULTS=all
	[ -z "${KILLS:-}" ] || export TIDEGATE_KILLS=$KILLS
	part memory cargo test --package tidegate-agent --lib -- tests::matrix tests::faults tests::deaths --nocapture
	if [ "${HOURS:-}" = 0 ]; then
		unset TIDEGATE_FAULTS
		VM=${VM:-no}
	else
		export TIDEGATE_KILLS=${KILLS:-50}
	fi
	for test in boundaries fault_machine fault_namespaces hostile_client kill kill_foreign; do
		part "$test" cargo test --package tidegate --test all -- "$test::" --nocapture
	done
	part upgrade scripts/upgrade.sh "${OLD:-target/debug/tidegate}" target/debug/tidegate
	[ "${VM:-yes}" = no ] || part vm cargo xtask vm --kernel all --limit 14400
	[ "${VM:-yes}" = no ] || part lab cargo test --package tidegate-lab --test all -- --ignored
}

# The sched_ext engine tormented on two emulated CPUs: tests/vm/cases/sched-ext-soak.sh. A kernel's
# boot and its last round come on top.
sched_ext() {
	local seconds=${EXT_S:-1800} kernel
	[ "${HOURS:-}" != 0 ] || seconds=${EXT_S:-60}
	[ "${VM:-yes}" != no ] && [ "$seconds" -gt 0 ] || return 0
	export TIDEGATE_SOAK_S=$seconds
	for kernel in 6.18 7.3; do
		part "ext-$kernel" cargo xtask vm --mode smp --kernel $kernel --limit $((4 * seconds + 1200)) sched-ext-soak sched-ext-limits-many
		grep -h -e ' rounds$' -e ejected_by_a -e host_stood "$logs/ext-$kernel-$rounds.log"
	done
}

# Every `faults: WHERE: KIND: N` of all logs, summed.
table() {
	cat "$logs"/*.log | awk -F ': ' '
		$1 == "faults" { kind = $2; for (i = 3; i < NF; i++) kind = kind ": " $i; sum[kind] += $NF; total += $NF }
		END {
			for (kind in sum) printf "%-60s %8d\n", kind, sum[kind] | "sort"
			close("sort")
			printf "%-60s %8d\n", "faults injected", total
		}'
}

# In all.
injected() {
	cat "$logs"/*.log | awk -F ': ' '$1 == "faults" { total += $NF } END { printf "%d", total }'
}

while [ $rounds -eq 0 ] || [ $SECONDS -lt "$until_s" ]; do
	rounds=$((rounds + 1))
	round
done
sched_ext
table
left=$(find /sys/fs/cgroup -name 'tgtest-*' -o -name 'other-tgtest-*' | wc -l)
if [ "$left" -ne 0 ]; then
	failures=$((failures + 1))
	echo "soak: $left groups are left behind"
fi
total=$(injected)
if [ "$total" -lt $((10000 * rounds)) ]; then
	failures=$((failures + 1))
	echo "soak: fewer than 10,000 faults a round"
fi
echo "soak: $total faults injected, $failures failures, $left groups left behind ($rounds rounds, $SECONDS s)"
[ $failures -eq 0 ]
