# what: a unit is limited in its place; daemon-reload, neighbours and restarts leave main safe; all of it is undone
# modes: precise
# userland: systemd
# tier: long 7.3
# seconds: 200
printf '[Service]\nExecStart=/usr/bin/vmtool burn\n' >/run/systemd/system/t-work.service
printf '[Service]\nExecStart=/usr/bin/vmtool burn\nCPUQuota=80%%\n' >/run/systemd/system/t-other.service
systemctl daemon-reload
systemctl start t-work.service
UNIT=$ROOT/system.slice/t-work.service
quota() { cut -d' ' -f1 $UNIT/cpu.max; }
limited() { [ "$(cat $UNIT/cpu.idle)" = 1 ] && [ "$(quota)" != max ]; }
# By the shell alone: each process that looks is a burst of main, for which the engine cuts; for the
# same reason seldom.
raised() {
	read -r _quota _period <$UNIT/cpu.max
	read -r _idle <$UNIT/cpu.idle
	[ "$_idle" = 1 ] && [ "$_quota" != max ] && [ $((1000 * _quota / _period)) -gt 100 ]
}
moving() {
	for _look in 1 2 3 4 5; do
		sleep 2
		! raised || return 0
	done
	return 1
}

# What cannot be a target says why, and what would help.
refused() {
	tidegate set "$1" class=side >/tmp/said 2>&1 && fail "$1 was taken"
	grep -q "$2" /tmp/said || fail "$1: '$(cat /tmp/said)' does not say '$2'"
}
refused unit:t-none 'no such unit'
refused unit:t-other 'systemctl start t-other.service'
refused unit:multi-user.target 'no processes'

tidegate set unit:t-work class=side headroom=30%
moving || fail "not limited: '$(cat $UNIT/cpu.max)', idle '$(cat $UNIT/cpu.idle)'"
same "CPUWeight of the unit, for systemd" "$(systemctl show -P CPUWeight t-work)" idle
floor=$(systemctl show -P CPUQuotaPerSecUSec t-work)
[ "$floor" != infinity ] || fail "systemd was told no floor"
tidegate status unit:t-work | grep -q "unit:t-work.service" || fail "$(tidegate status unit:t-work)"

# systemd writes its own value: never more than the floor, and ours is back soon, time after time.
for turn in 1 2 3; do
	printf '[Service]\nExecStart=/usr/bin/vmtool burn\nCPUWeight=%s\n' $((50 + turn)) >/run/systemd/system/t-other.service
	systemctl daemon-reload
	systemctl start t-other.service
	limited || fail "after a daemon-reload: '$(cat $UNIT/cpu.max)', idle '$(cat $UNIT/cpu.idle)'"
	systemctl stop t-other.service
	moving || fail "turn $turn: the moving value is not back: '$(cat $UNIT/cpu.max)'"
	sleep 6
done
tidegate status --json >/tmp/status
! grep -q "left alone" /tmp/status || fail "systemd was taken for an adversary: $(cat /tmp/status)"

# A restart: another group of the same name, limited from its first moment.
before=$(stat -c %i $UNIT)
systemctl restart t-work.service
limited || fail "after a restart: '$(cat $UNIT/cpu.max)', idle '$(cat $UNIT/cpu.idle)'"
[ "$(stat -c %i $UNIT)" != "$before" ] || fail "the same group after a restart"
moving || fail "the gate did not follow the restart: '$(cat $UNIT/cpu.max)'"

# It stops, and starts again later.
systemctl stop t-work.service
sleep 4
tidegate status --json | grep -q t-work || fail "the gate did not wait: $(tidegate status)"
systemctl start t-work.service
limited || fail "after a start: '$(cat $UNIT/cpu.max)', idle '$(cat $UNIT/cpu.idle)'"
moving || fail "the gate did not follow the start: '$(cat $UNIT/cpu.max)'"

# Both are undone.
tidegate unset unit:t-work
until_true 10 gone || fail "left: $(ours)"
same "the unit's limit" "$(cat $UNIT/cpu.max)" "max 100000"
same "the unit's idle and weight" "$(cat $UNIT/cpu.idle) $(cat $UNIT/cpu.weight)" "0 100"
same "systemd's quota" "$(systemctl show -P CPUQuotaPerSecUSec t-work)" infinity
systemctl daemon-reload
systemctl restart t-work.service
same "after another reload and restart" "$(cat $UNIT/cpu.max) $(cat $UNIT/cpu.idle)" "max 100000 0"
same "drop-ins left" "$(find /run/systemd/system.control -name '*.conf' 2>/dev/null)" ""

# An agent on demand does not end with the session of the command that started it, as where
# KillUserProcesses= is on.
systemd-run --quiet --scope --unit=t-session sh -c 'tidegate run --main -- sleep 1000 & exec sleep 1000' &
apart() { grep -q "run-tidegate-.*\.scope" /proc/"$(agent)"/cgroup 2>/dev/null; }
until_true 20 apart || fail "the agent stays in the session: $(cat /proc/"$(agent)"/cgroup)"
before=$(agent)
same "its guardian's group" "$(cat /proc/"$(tidegate status --json | json guardian_pid)"/cgroup)" "$(cat /proc/$before/cgroup)"
systemctl kill -s KILL t-session.scope
[ -d /proc/$before ] && [ "$(agent)" = $before ] || fail "the agent ended with the session"
kill $(cat $ROOT/tidegate-main/*/cgroup.procs)
until_true 10 gone || fail "left: $(ours)"
