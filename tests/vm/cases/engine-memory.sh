# what: memory_high of a side gate: the kernel holds it, changes take effect, and it is refused where nobody hands memory down
# modes: precise
# kernels: 6.18
# seconds: 40
grep -qw memory $ROOT/cgroup.controllers || fail "no memory controller"
echo -memory >$ROOT/cgroup.subtree_control
tidegate run --side --memory-high 16MiB -- true 2>/tmp/said && fail "without the controller: $(cat /tmp/said)"
grep -q "memory_high: / does not hand the memory controller down" /tmp/said || fail "it says: $(cat /tmp/said)"
gone_soon
echo +memory >$ROOT/cgroup.subtree_control
# What is written there counts for who wrote it.
mkdir -p /disk
mount -t tmpfs none /disk
run_gated side --side --name eats --memory-high 16MiB -- sh -c 'while :; do dd if=/dev/zero of=/disk/file bs=1M count=12 2>/dev/null; done'
at=$ROOT$(cgroup_of $side)
same "its limit" "$(cat $at/memory.high)" 16777216
# The command takes it once it is in its gate.
has_idle_io() { [ "$(ionice -p $side)" = idle ]; }
until_true 10 has_idle_io || fail "its I/O is '$(ionice -p $side)'"
tidegate set gate:eats memory_high=4MiB
same "its new limit" "$(cat $at/memory.high)" 4194304
over() { [ "$(awk '/^high/ { print $2 }' $at/memory.events)" -gt 0 ]; }
until_true 10 over || fail "nothing was taken back: $(cat $at/memory.current)"
tidegate set gate:eats memory_high=off
same "no limit" "$(cat $at/memory.high)" max
tidegate set pid:$$ class=side memory_high=64MiB 2>/tmp/said && fail "a process where it is: $(cat /tmp/said)"
grep -q "systemctl set-property" /tmp/said || fail "it says: $(cat /tmp/said)"
gone_soon $side
# A file's default for all side work does not refuse what is not a command of run.
mkdir -p /etc/tidegate
printf '[side]\nmemory_high = "64MiB"\n' >/etc/tidegate/tidegate.toml
vmtool burn &
other=$!
tidegate set pid:$other class=side || fail "refused for a default"
finish $other
rm /etc/tidegate/tidegate.toml
gone_soon
