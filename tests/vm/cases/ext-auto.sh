# what: headroom = auto under the ext engine: a hog alone has all of the machine; beside a main of short turns a headroom is found
# modes: wide
# needs: tidegate
# tier: long
# seconds: 400
cpus 4
state() { tidegate status --json | tr ',{}' '\n\n\n' | sed -n '/"harm":/,/"sentence"/s/^ *"state": *//p' | tr -d '"'; }
tidegate agent --engine ext >/tmp/agent 2>&1 &
agent=$!
agent_ext_on $agent
tidegate run --side -- vmtool threads 2 &
side=$!
gate_soon $side $SIDE
sleep 4
SEEN=$(vmtool clock 10 $SIDE)
measure side_alone "$(of $SIDE)" %
same "the state without main" "$(state)" "no main work"
within "what a hog alone has" "$(of $SIDE)" 90 101
tidegate run --main -- vmtool duty 40 2000 &
main=$!
gate_soon $main $MAIN
sleep 5
same "the state beside main" "$(state)" learning
# Half of the time at the tolerance, half with what main leaves: 80 % of the machine.
SEEN=$(vmtool clock 10 $SIDE)
measure side_learning "$(of $SIDE)" %
within "side work while it learns" "$(of $SIDE)" 25 60
# Each look is a burst of main: seldom.
found() {
	sleep 4
	case $(state) in known | most | unknown) ;; *) return 1 ;; esac
}
until_true 250 found || { tidegate status; fail "nothing was found: $(state)"; }
measure found_at "$(uptime)" s
ext_is_on
tidegate status
same "the state" "$(state)" known
measure level "$(tidegate status --json | json level_pct)" %
measure harm "$(tidegate status --json | json harm_pct)" %
