# what: exit code, signal, standard input and output of a command pass through untouched
# modes: smp
# needs: tidegate
# seconds: 60
code() { "$@" >/tmp/out 2>/tmp/err && echo 0 || echo $?; }
same "an exit code" "$(code tidegate run --side -- sh -c 'exit 42')" 42
same "success" "$(code tidegate run --main -- true)" 0
same "death by SIGTERM" "$(code tidegate run --side -- sh -c 'kill -TERM $$')" 143
same "a command that is not there" "$(code tidegate run --side -- /no/such/command)" 127
same "a command that is no program" "$(code tidegate run --side -- /tmp)" 126
same "standard input" "$(echo through | tidegate run --side -- cat)" through
same "arguments" "$(tidegate run --side -- printf '%s|' 'a b' '' '--json')" "a b||--json|"
tidegate run --side -- sh -c 'trap "exit 9" USR1; echo >/tmp/ready; while :; do sleep 0.05; done' &
until_true 10 [ -e /tmp/ready ] || fail "the command did not start"
kill -USR1 $!
status=0
wait $! || status=$?
same "a signal sent to it" $status 9
gone_soon
