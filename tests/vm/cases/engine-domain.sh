# what: headroom on main's own CPUs on v2: side work leaves them and has the others in full; within them the quota keeps it
# modes: smp
# kernels: 6.18 7.3
# tier: long 7.3
# needs: tidegate
# seconds: 60
grep -qw cpuset /sys/fs/cgroup/cgroup.controllers || fail "no cpuset controller"
echo +cpuset +cpu >$ROOT/cgroup.subtree_control
mkdir -p $ROOT/web
echo 0 >$ROOT/web/cpuset.cpus
inside web vmtool threads 1 &
main=$!
tidegate run --side -- vmtool threads 2 &
side=$!
gate_soon $side $SIDE
tidegate set cgroup:/web class=main headroom=30%
cpus_of() { cat $ROOT/$SIDE/cpuset.cpus 2>/dev/null; }
is() { [ "$(cpus_of)" = "$1" ]; }
# With somebody in it the kernel has no group go without CPUs of its own.
open() { is 0-1 || is ""; }
until_true 8 is 1 || fail "side work has CPUs '$(cpus_of)'"
tidegate status | grep "CPUs 0 (gate" || fail "status does not tell of main's own CPU"
tidegate explain gate:vmtool | grep "30 % by gate" || fail "explain does not tell the sum"
# CPU 1 is side work's alone: all of it, without a quota in the way.
throttled() { awk '/^nr_throttled/ { print $2 }' $ROOT/$SIDE/cpu.stat; }
free() { [ "$(awk '{ print ($1 > 2 * $2) }' $ROOT/$SIDE/cpu.max)" = 1 ]; }
until_true 8 free || fail "a quota is in the way: $(cat $ROOT/$SIDE/cpu.max)"
sleep 0.5
from=$(usage $SIDE) was=$(throttled) began=$(uptime)
sleep 4
used=$(awk -v a="$from" -v b="$(usage $SIDE)" -v s="$began" -v e="$(uptime)" 'BEGIN { print (b - a) / (e - s) / 10000 }')
measure side_of_its_cpu "$used" %
# The emulated machine's own threads are there, too (how many, the host's load decides); a law of CPU 0 would leave it 1 %.
within "side work's part of CPU 1, percent" "$used" 10 101
# An emulated CPU that was away for longer than a period looks throttled once it is back.
measure throttled "$(($(throttled) - was))" times
free || fail "a quota is in the way: $(cat $ROOT/$SIDE/cpu.max)"
# Main is let out of its cpuset: the headroom is the machine's, and the cpuset goes.
echo 0-1 >$ROOT/web/cpuset.cpus
until_true 8 open || fail "side work is still confined to '$(cpus_of)'"
within "the quota in percent of a CPU" "$(awk '{ print 100 * $1 / $2 }' $ROOT/$SIDE/cpu.max)" 0.5 100
# And back.
echo 0 >$ROOT/web/cpuset.cpus
until_true 8 is 1 || fail "side work came not back to CPU 1 but to '$(cpus_of)'"
# The agent dies: off main's CPU and at the floor; the next one goes on.
kill -9 "$(agent)"
until_true 30 sh -c 'tidegate status >/dev/null' || fail "no agent came back"
until_true 8 is 1 || fail "the next agent does not go on: '$(cpus_of)'"
tidegate unset cgroup:/web
until_true 8 open || fail "without main's gate side work is still on '$(cpus_of)'"
kill $main
finish $side
gone_soon
