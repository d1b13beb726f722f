# What every guest test has at hand; sourced before the test. `set -eu` holds: a command that fails ends the test.
set -eu
ROOT=/sys/fs/cgroup

uptime() { cut -d' ' -f1 /proc/uptime; }

# fail WORDS: the test fails, with the reason on one line.
fail() {
	echo "$*" >/tmp/why
	echo "FAIL: $*"
	exit 1
}

# skip WORDS: this machine cannot show it.
skip() {
	echo "$*" >/tmp/why
	exit 77
}

# measure NAME VALUE UNIT: a figure for the report.
measure() { echo "@@tg $(uptime) measure $TEST $1 $2 $3"; }

# same WHAT FOUND WANTED
same() { [ "$2" = "$3" ] || fail "$1 is '$2', not '$3'"; }

# within WHAT FOUND LOW HIGH (decimal numbers)
within() {
	awk -v x="$2" -v a="$3" -v b="$4" 'BEGIN { exit !(x != "" && x >= a && x <= b) }' || fail "$1 is '$2', not within $3..$4"
}

# until_true SECONDS COMMAND...: waits for it to succeed.
until_true() {
	_end=$(awk -v s="$1" '{ print int($1 * 100 + s * 100) }' /proc/uptime)
	shift
	until "$@"; do
		[ "$(awk '{ print int($1 * 100) }' /proc/uptime)" -lt "$_end" ] || return 1
		sleep 0.02
	done
}

# group NAME: makes a group below the root (NAME may be a path) with the cpu controller for its children's sake.
group() {
	mkdir -p "$ROOT/$1"
}

# inside GROUP COMMAND...: runs it in that group, in the foreground.
inside() {
	_group=$1
	shift
	sh -c 'echo 0 >"$0/cgroup.procs"; exec "$@"' "$ROOT/$_group" "$@"
}

# usage GROUP: its CPU time so far, in µs.
usage() { awk '/^usage_usec/ { print $2 }' "$ROOT/$1/cpu.stat"; }

# of KEY: that key of the last `vmtool watch` line in $SEEN ("idle=30.00 a=1.00 ...", percent of the machine).
of() { echo "$SEEN" | tr ' ' '\n' | sed -n "s|^$1=||p"; }
