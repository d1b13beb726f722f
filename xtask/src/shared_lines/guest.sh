# The guest's side of `cargo xtask shared-lines`: each scheduler in turn, each load under it, a line each on standard output in
# the order in which the plugin counts. For a scheduler, its symbols and source lines are left beside it.
set -eu
export PATH=/bin
SCHED=/sys/kernel/sched_ext
echo 1 >/proc/sys/net/core/bpf_jit_kallsyms
echo 0 >/proc/sys/kernel/kptr_restrict

# measured NAME: what the loads of $LOADS come to under it.
measured() {
	while read -r load; do
		echo "$1: $load" >&2
		# One word each.
		# shellcheck disable=SC2086
		figures=$(lines count 60 "$COUNT_MS" $load)
		echo "$1|$load|$figures"
	done <"$LOADS"
	lines programs >"$1.lines"
	gzip </proc/kallsyms >"$1.symbols.gz"
}

measured eevdf
for name in $SCHEDULERS; do
	"$name" >/tmp/"$name" 2>&1 &
	for _ in $(seq 240); do
		[ "$(cat $SCHED/state)" = enabled ] && break
		sleep 0.25
	done
	if [ "$(cat $SCHED/state)" != enabled ]; then
		tail -n 3 /tmp/"$name" >&2
		continue
	fi
	sleep 1
	measured "$name"
	[ "$(cat $SCHED/state)" = enabled ] || echo "$name left the kernel" >&2
	kill -INT $!
	wait $! || true
done
