# what: idle by cpuset on v2: the side root's cpuset follows, goes with the last gate, and is taken off by the next agent after a death
# modes: smp
# tier: long 7.3
# seconds: 40
mkdir -p /etc/tidegate
echo 'cpuset = "on"' >/etc/tidegate/tidegate.toml
grep -qw cpuset /sys/fs/cgroup/cgroup.controllers || fail "no cpuset controller"
run_gated side --side --headroom 30% -- vmtool threads 2
cpus_of() { cat $ROOT/$SIDE/cpuset.cpus 2>/dev/null; }
confined() { [ -n "$(cpus_of)" ]; }
until_true 8 confined || fail "side is not confined"
tidegate status | grep "by cpuset" || fail "status does not say so"
same "cpu.idle while it is confined" "$(cat $ROOT/$SIDE/cpu.idle)" 0
# Main on every CPU: one core is enough for the tolerance.
group main
into main vmtool threads 2 &
main=$!
until_true 10 sh -c "[ \"\$(cat $ROOT/$SIDE/cpuset.cpus)\" = 1 ]" || fail "the set did not shrink: $(cpus_of)"
same "side's CPUs in the kernel's own words" "$(cat $ROOT/$SIDE/cpuset.cpus.effective)" 1
finish $main
kill -9 "$(agent)"
until_true 10 sh -c 'tidegate status >/dev/null' || fail "no agent came back"
until_true 10 confined || fail "the next agent does not go on"
gone_soon $side
rm /etc/tidegate/tidegate.toml
