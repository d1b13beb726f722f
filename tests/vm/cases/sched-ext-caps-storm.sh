# what: fork storms under caps of each scope, and caps that change meanwhile, neither eject the sched_ext engine nor lose a task
# modes: smp
# kernels: 6.18
# tier: long
# seconds: 120
group bytask byprocess bygroup
sched_ext_on --json --gate "cgroup:/bytask cap_hard=200‰ cap_scope=task" \
	--gate "cgroup:/byprocess cap_hard=200‰ cap_soft=50‰ cap_scope=process" \
	--gate "cgroup:/bygroup cap_hard=500‰ cap_scope=group"
STORM='n=0; while [ $n -lt 40 ]; do for i in 1 2 3 4 5; do true & done; (true; true) & wait; n=$((n + 1)); done; echo done'
for name in bytask byprocess bygroup; do
	inside $name sh -c "$STORM" >/tmp/storm.$name &
	inside $name vmtool burn &
done
storms_are_over() { [ "$(cat /tmp/storm.* | grep -c done)" = 3 ]; }
until_true 90 storms_are_over || fail "storms that did not end: '$(grep -L done /tmp/storm.*)'"
for name in bytask byprocess bygroup; do
	echo 1 >$ROOT/$name/cgroup.kill
	until_true 10 sh -c "[ -z \"\$(cat $ROOT/$name/cgroup.procs)\" ]" || fail "killed tasks of $name are still there"
done
sched_ext_is_on
# No task is left that could use a reservation: two CPUs that throttled the same task reserved for
# it once, and took it back.
sleep 3
tail -n 1 /tmp/sched_ext >/tmp/last
grep -q '"reserved_us":' /tmp/last || fail "the statistics tell of no cap"
grep -o '"reserved_us": *[0-9]*' /tmp/last
same "what is reserved for no task" "$(grep -o '"reserved_us": *[1-9][0-9]*' /tmp/last)" ""
sched_ext_off
