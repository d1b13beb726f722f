# what: hints of -20 to 19 on a command, a process and a unit's group: inherited, swept, kept over a kill of the agent, undone
# modes: precise
# seconds: 240
base=$(vmtool slice $$)
measure default_slice "$base" ns

# A command has it from its first instruction, and so has what it forks.
run_gated shell --main --name hinted --latency -20 -- sh -c 'vmtool burn & wait'
forked() { child=$(cat /proc/$shell/task/$shell/children); [ -n "$child" ]; }
until_true 20 forked || fail "the command has not forked"
same "the command's slice" "$(vmtool slice $shell)" 100000
same "its child's slice" "$(vmtool slice $child)" 100000
tidegate unset gate:hinted latency
same "the child's slice after unset" "$(vmtool slice $child)" "$base"
kill $child
wait $shell || true

# Side work without a hint: 7.3 has one queue a CPU.
run_gated side --side -- vmtool burn
case $(uname -r) in 7.*) short=100000 ;; *) short=$base ;; esac
same "the slice of side work" "$(vmtool slice $side)" "$short"
finish $side

# Every thread of a process.
vmtool threads 4 &
threads=$!
four() { [ "$(vmtool slice $threads | wc -l)" = 4 ]; }
until_true 20 four || fail "no four threads"
tidegate set pid:$threads latency=-20
same "slices of four threads" "$(vmtool slice $threads | sort -u)" 100000

# A group, with what enters it later; the agent dies meanwhile.
group hinted
sh -c 'echo 0 >"$0/cgroup.procs"; exec vmtool burn' $ROOT/hinted &
early=$!
vmtool burn &
late=$!
inside_yet() { grep -q hinted /proc/$early/cgroup; }
until_true 20 inside_yet || fail "nobody entered the group"
tidegate set cgroup:/hinted latency=19
longest=$(vmtool slice $early)
[ "$longest" -gt "$base" ] || fail "a hint of 19 is $longest ns, the default $base ns"
old=$(agent)
kill -KILL "$old"
another() { [ "$(agent 2>/dev/null)" != "$old" ] && alive "$(agent 2>/dev/null)"; }
until_true 30 another || fail "no other agent"
echo $late >$ROOT/hinted/cgroup.procs
swept() { [ "$(vmtool slice $late)" = "$longest" ]; }
until_true 20 swept || fail "the sweep of the new agent did not find what entered: $(vmtool slice $late)"
same "the threads' slices under the new agent" "$(vmtool slice $threads | sort -u)" 100000
tidegate unset cgroup:/hinted
same "what was in the group" "$(vmtool slice $early)" "$base"
same "what entered it" "$(vmtool slice $late)" "$base"
tidegate agent stop
same "the threads after stop" "$(vmtool slice $threads | sort -u)" "$base"
gone_soon $early $late $threads
