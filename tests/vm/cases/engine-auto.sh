# what: headroom = auto: a hog alone has all of the machine and is never throttled; beside a main of short turns the least headroom that leaves it unharmed is found
# modes: wide
# needs: tidegate
# tier: long
# seconds: 300
cpus 4
state() { tidegate status --json | tr ',{}' '\n\n\n' | sed -n '/"harm":/,/"sentence"/s/^ *"state": *//p' | tr -d '"'; }
throttled() { sed -n 's/^nr_throttled //p' $ROOT/$SIDE/cpu.stat; }
in_state() { [ "$(state)" = "$1" ]; }
tidegate run --side -- vmtool threads 2 &
side=$!
gate_soon $side $SIDE
sleep 4
from=$(throttled)
seen 20 $SIDE
tidegate status
measure side_alone "$(of $SIDE)" %
same "the state without main" "$(state)" "no main work"
same "periods in which a hog alone was throttled" "$(($(throttled) - from))" 0
within "what a hog alone has" "$(of $SIDE)" 90 101
# 500 turns of 0.8 ms a second, by a schedule of its own.
tidegate run --main -- vmtool duty 40 2000 &
main=$!
gate_soon $main $MAIN
# Each look is a burst of main: seldom.
found() { sleep 4; in_state known || in_state most || in_state unknown; }
until_true 200 found || { tidegate status; fail "nothing was found: $(state)"; }
measure found_at "$(uptime)" s
tidegate status
tidegate explain pid:$side | grep -q 'headroom = auto: side work costs main' || { tidegate explain pid:$side; fail "explain does not tell harm"; }
same "the state" "$(state)" known
measure level "$(tidegate status --json | json level_pct)" %
measure harm "$(tidegate status --json | json harm_pct)" %
within "the headroom that is found" "$(tidegate status --json | json level_pct)" 0 20
