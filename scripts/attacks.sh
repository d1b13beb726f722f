#!/bin/bash
# Plays a hostile user against an agent of its own (a trial instance: TIDEGATE_RUN_DIR, TIDEGATE_PREFIX), as nobody, and says what was
# achieved. Usage, as root: scripts/attacks.sh [COMMAND], COMMAND being a tidegate that nobody may read (target/release/tidegate).
# Exit code: 0 when nothing was achieved.
set -u
command=$(realpath "${1:-target/release/tidegate}")
[ "$(id -u)" = 0 ] || { echo "attacks: run as root: it starts an agent and attacks it as nobody" >&2; exit 2; }
dir=$(mktemp -d /dev/shm/attacks.XXXXXX)
chmod 755 "$dir"
cp "$command" "$dir/tidegate" && chmod 755 "$dir/tidegate"
export TIDEGATE_RUN_DIR=$dir/run TIDEGATE_PREFIX=attacks-$$
tidegate=$dir/tidegate
socket=$TIDEGATE_RUN_DIR/tidegate.sock
achieved=0

finish() {
	pkill -KILL -u nobody -f "$dir|sleep 98765" 2>/dev/null
	$tidegate agent stop >/dev/null 2>&1
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		sleep 0.3
		$tidegate agent repair >/dev/null 2>&1 && break
	done
	rm -rf "$dir"
}
trap finish EXIT

as_nobody() { setpriv --reuid nobody --regid nogroup --clear-groups env -C / "$@"; }
# attack NAME COMMAND...: it succeeds if something was achieved.
attack() {
	name=$1
	shift
	if "$@"; then
		echo "ACHIEVED  $name"
		achieved=$((achieved + 1))
	else
		echo "nothing   $name"
	fi
}
agent_pid() { $tidegate status --json | sed -n 's/^  "pid": \([0-9]*\).*/\1/p'; }
# Root is answered within a second, by the agent that was there.
root_is_shut_out() {
	! timeout 1 $tidegate run --side --quiet -- true || [ "$(agent_pid)" != "$agent" ]
}

$tidegate run --main --quiet --name main -- sleep 98765 &
main=$!
until $tidegate status main >/dev/null 2>&1; do sleep 0.1; done
agent=$(agent_pid)

claims_main() { as_nobody $tidegate run --main --quiet -- true 2>/dev/null; }
takes_headroom() { as_nobody $tidegate run --side --headroom 90% --quiet -- true 2>/dev/null; }
touches_others() { as_nobody $tidegate set pid:$main class=side 2>/dev/null || as_nobody $tidegate unset main 2>/dev/null; }
ends_the_agent() { as_nobody $tidegate agent stop 2>/dev/null; }
sees_command_lines() { as_nobody $tidegate status --json 2>/dev/null | grep -q 98765; }

# Far more gates than a user may have, as many descriptors as that takes.
many_gates() {
	for _ in $(seq 200); do
		as_nobody $tidegate run --side --quiet --cap-soft 500‰ -- sleep 98765 2>/dev/null &
	done
	sleep 12
	[ "$($tidegate status --json | grep -c '"class": "side"')" -gt 64 ] || root_is_shut_out
}

# Connections that say nothing, or half of something.
slow_clients() {
	as_nobody python3 - "$socket" <<'END' &
import socket, sys, time
held = []
for n in range(1000):
    try:
        one = socket.socket(socket.AF_UNIX)
        one.connect(sys.argv[1])
        one.send(b"POST /v1/run HTTP/1.1\r\ncontent-length: 1000\r\n\r\n{" if n % 2 else b"GET")
        held.append(one)
    except OSError:
        break
time.sleep(4)
END
	sleep 1
	root_is_shut_out
	shut_out=$?
	wait $!
	return $shut_out
}

# Bodies and lines of any length and kind.
garbage() {
	for size in 1000 262144 8388608; do
		head -c $size /dev/urandom | as_nobody timeout 5 python3 -c '
import socket, sys
one = socket.socket(socket.AF_UNIX)
one.connect(sys.argv[1])
body = sys.stdin.buffer.read()
try:
    one.sendall(b"POST /v1/set HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    one.recv(100)
    two = socket.socket(socket.AF_UNIX)
    two.connect(sys.argv[1])
    two.sendall(body)
    two.recv(100)
except OSError:
    pass' "$socket"
	done
	root_is_shut_out
}

asks_without_end() {
	for _ in $(seq 300); do as_nobody $tidegate status >/dev/null 2>&1; done
	root_is_shut_out
}

attack "be main" claims_main
attack "take headroom" takes_headroom
attack "touch another's gate" touches_others
attack "end the agent" ends_the_agent
attack "read another's command line" sees_command_lines
attack "200 gates with soft caps" many_gates
attack "1000 slow connections" slow_clients
attack "garbage of up to 8 MiB" garbage
attack "300 reads in a row" asks_without_end
kill $main
echo "achieved: $achieved of 9"
[ $achieved = 0 ]
