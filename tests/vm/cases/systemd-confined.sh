# what: side work of a unit's user stays below the unit: tasks, memory, swap, CPUs and the address filter still hold; where it cannot stay, it is refused
# modes: smp
# tier: long 7.3
# userland: systemd
# seconds: 120
cat >/tmp/inner <<'END'
#!/bin/sh
# What it can still do, as nobody: a connection to a port where nobody listens, and how many tasks
# it may have.
nc -w 2 127.0.0.1 9 </dev/null >/tmp/$1-net 2>&1
(for n in $(seq 80); do sleep 1000 & done) 2>/tmp/$1-forks
exec sleep 1000
END
chmod 755 /tmp/inner
chmod 1777 /tmp
ip link set lo up 2>/dev/null || ifconfig lo up

# unit NAME LINES: a service of nobody's that runs the script as side work.
unit() {
	printf '[Service]\nUser=nobody\n%b\nExecStart=%s /tmp/inner %s\n' "$2" "$3" "$1" >/run/systemd/system/$1.service
}
LIMITS='CPUWeight=90\nTasksMax=40\nMemoryMax=200M\nMemorySwapMax=0\nAllowedCPUs=0\nIPAddressDeny=any'
unit t-free '' ''
unit t-in "$LIMITS" '/usr/bin/tidegate run --side --quota 500m --name inner --'
# No unit there has CPU settings, so the slice hands no CPU controller down.
unit t-out 'Slice=other.slice\nTasksMax=40' '/usr/bin/tidegate run --side --name outer --'
sed 's|@PREFIX@|/usr|g' /vm/tidegate.service >/run/systemd/system/tidegate.service
systemctl daemon-reload
systemctl start tidegate.service

# What the script says where nothing restricts it.
systemctl start t-free.service
forked() { [ "$(grep -c . $ROOT/$1/cgroup.threads 2>/dev/null)" -ge "$2" ]; }
until_true 20 forked system.slice/t-free.service 60 || fail "the script does not fork: $(cat /tmp/t-free-forks)"
grep -qi refused /tmp/t-free-net || fail "no answer of the own machine: $(cat /tmp/t-free-net)"
systemctl stop t-free.service

systemctl start t-in.service
HOME_OF=system.slice/t-in.service
until_true 20 test -s /tmp/t-in-forks || fail "no task was refused: $(systemctl status t-in.service)"
INNER=$HOME_OF/tidegate-inner=
[ -d $ROOT/$INNER ] || fail "no group below the unit: $(tidegate status)"
same "what is beside it" "$(cat $ROOT/$HOME_OF/cgroup.type)" "domain threaded"
same "its class" "$(cat $ROOT/$INNER/cpu.idle)" 1
[ "$(cut -d' ' -f1 $ROOT/$INNER/cpu.max)" != max ] || fail "its quota is not written"
within "its tasks" "$(cat $ROOT/$HOME_OF/pids.current)" 30 40
same "its memory" "$(cat $ROOT/$HOME_OF/memory.max)" 209715200
same "its swap" "$(cat $ROOT/$HOME_OF/memory.swap.max)" 0
pid=$(head -n 1 $ROOT/$INNER/cgroup.threads)
grep -q "Cpus_allowed_list:.*0$" /proc/$pid/status || fail "it left the unit's CPUs: $(grep Cpus_allowed_list /proc/$pid/status)"
! grep -qi refused /tmp/t-in-net || fail "it left the address filter: $(cat /tmp/t-in-net)"
[ ! -d $ROOT/$SIDE ] || fail "there is a side root: $(cat $ROOT/$SIDE/*/cgroup.procs)"
systemctl stop t-in.service
until_true 20 sh -c "[ ! -d $ROOT/$HOME_OF ]" || fail "the unit's group stays: $(ls $ROOT/$HOME_OF)"

systemctl start t-out.service
until_true 20 sh -c '[ "$(systemctl is-active t-out)" = failed ]' || fail "it was not refused: $(tidegate status)"
journalctl -u t-out.service --no-pager >/tmp/said
grep -q "pids.max = 40" /tmp/said || fail "the refusal does not name the limit: $(tail -n 3 /tmp/said)"

# The next case finds the machine as it was.
systemctl stop tidegate.service other.slice
systemctl reset-failed
until_true 20 sh -c "[ ! -d $ROOT/other.slice ]" || fail "the slice stays"
