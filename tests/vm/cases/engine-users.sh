# what: a user may run side work and tighten what is his; not call himself main, nor touch what is not his
# modes: precise
# kernels: 6.18
# seconds: 40
run_gated roots --side --headroom 20% -- vmtool burn
until_true 5 sh -c 'tidegate status >/dev/null' || fail "no agent answers"
as_user() { su guest -c "$*"; }
same "who runs the command" "$(as_user tidegate run --side -- id -u)" 1000
as_user "exec tidegate run --side -- vmtool burn" &
until_true 5 sh -c '[ "$(pidof vmtool | wc -w)" = 2 ]' || fail "the user's command did not start"
if as_user "tidegate run --main -- true"; then fail "a user became main"; fi
if as_user "tidegate set pid:$roots headroom=50%"; then fail "a user set terms of root's process"; fi
if as_user "tidegate unset pid:$roots"; then fail "a user took root's terms back"; fi
if as_user "tidegate set cgroup:/test class=side"; then fail "a user set terms of root's group"; fi
in_gate $roots $SIDE || fail "root's command left its gate"
held || fail "side is not held"
