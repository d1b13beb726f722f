# what: the packaged service under real systemd: it starts, survives kill -9 of both and a freeze, restarts, stops, and is undone
# modes: precise
# kernels: 6.18
# userland: systemd
# seconds: 300
sed 's|@PREFIX@|/usr|g' /vm/tidegate.service >/run/systemd/system/tidegate.service
printf '[Service]\nExecStart=/usr/bin/vmtool burn\n' >/run/systemd/system/t-work.service
systemctl daemon-reload
same "systemd on the unit's file" "$(systemctl show -P LoadError tidegate)" ""
systemctl start tidegate.service
same "the service" "$(systemctl is-active tidegate)" active
same "its agent" "$(agent)" "$(systemctl show -P MainPID tidegate)"
same "how it was started" "$(tidegate status --json | json mode)" service
same "its sensing, within the unit's restrictions" "$(tidegate status --json | json sensing)" bpf
systemd-analyze security --no-pager tidegate.service >/tmp/security
measure exposure "$(awk '/Overall exposure/ { print $(NF - 2) }' /tmp/security)" points
within "what systemd-analyze security gives it" "$(awk '/Overall exposure/ { print $(NF - 2) }' /tmp/security)" 0 3 || {
	cat /tmp/security
	exit 1
}

# soon SECONDS COMMAND...: looks every two seconds, since each look costs much of the precise
# machine's one CPU.
soon() {
	_turns=$(($1 / 2))
	shift
	while [ $_turns -gt 0 ]; do
		sleep 2
		! "$@" || return 0
		_turns=$((_turns - 1))
	done
	return 1
}

UNIT=$ROOT/system.slice/t-work.service
systemctl start t-work.service
tidegate set unit:t-work class=side headroom=20%
run_gated side --side --headroom 20% -- vmtool burn
safe() { held && [ "$(cat $UNIT/cpu.idle)" = 1 ] && [ "$(cut -d' ' -f1 $UNIT/cpu.max)" != max ]; }
soon 10 safe || fail "not limited"

none_left() { [ -z "$(ours)" ]; }
restarts() { systemctl show -P NRestarts tidegate; }
# Both gates are taken up by the next agent, and at no moment either is main's equal.
taken_up() {
	[ "$(restarts)" = "$1" ] || return 1
	systemctl is-active -q tidegate && tidegate status --json >/tmp/status 2>/dev/null || return 1
	grep -q t-work /tmp/status && grep -q '"vmtool"' /tmp/status
}
systemctl kill -s KILL tidegate.service
safe || fail "not limited after kill -9 of agent and guardian: $(cat $UNIT/cpu.max) $(cat $ROOT/$SIDE/cpu.max)"
soon 60 taken_up 1 || fail "not taken up after kill -9 of both: $(restarts) restarts, $(cat /tmp/status)"
safe || fail "not limited by the next agent"

systemctl kill -s KILL --kill-whom=main tidegate.service
safe || fail "not limited after kill -9 of the agent"
soon 60 taken_up 2 || fail "not taken up after kill -9 of the agent: $(restarts) restarts, $(cat /tmp/status)"

kill -STOP "$(systemctl show -P MainPID tidegate)"
sleep 4
safe || fail "not limited while the agent is frozen"
soon 90 taken_up 3 || fail "a frozen agent was not replaced: $(restarts) restarts, $(systemctl show -P Result tidegate)"

# A restart, as after an upgrade: with another file at the path, and no look from outside finds
# either gate without its limits.
cp /usr/bin/tidegate /usr/bin/tidegate.new
mv /usr/bin/tidegate.new /usr/bin/tidegate
systemctl daemon-reload
looks=0
while [ ! -e /tmp/enough ]; do
	safe || echo "$(cat $UNIT/cpu.max $UNIT/cpu.idle $ROOT/$SIDE/cpu.max)" >>/tmp/unsafe
	looks=$((looks + 1))
	echo $looks >/tmp/looks
	sleep 0.05
done &
watching=$!
before=$(agent)
systemctl restart --no-block tidegate.service
# A command that comes in between waits for the service's next agent, and starts none of its own.
tidegate run --main -- true
after_restart() { systemctl is-active -q tidegate && [ "$(agent)" != "$before" ] && taken_up "$(restarts)"; }
soon 30 after_restart || fail "not taken up after a restart: $(tidegate status)"
sleep 2
touch /tmp/enough
wait $watching
[ ! -e /tmp/unsafe ] || fail "without limits during a restart: $(cat /tmp/unsafe)"
[ "$(cat /tmp/looks)" -gt 20 ] || fail "looked only $(cat /tmp/looks) times"
same "how it was started" "$(tidegate status --json | json mode)" service
same "what runs" "$(readlink /proc/"$(agent)"/exe)" /usr/bin/tidegate
restored() { [ "$(cat $UNIT/cpu.max) $(cat $UNIT/cpu.idle)" = "max 100000 0" ]; }

# A stop that overtakes a restart is a stop: nothing stays for an agent that does not come.
systemctl restart --no-block tidegate.service
systemctl stop tidegate.service
same "the service, stopped" "$(systemctl is-active tidegate || true)" inactive
same "its result" "$(systemctl show -P Result tidegate)" success
soon 10 none_left || fail "processes left: $(ours)"
restored || fail "the unit was not restored: $(cat $UNIT/cpu.max) $(cat $UNIT/cpu.idle)"
same "systemd's quota" "$(systemctl show -P CPUQuotaPerSecUSec t-work)" infinity
held || fail "the command that still runs is not held"
finish $side
# The scheduler loads within the unit's restrictions, too.
echo 'engine = "sched_ext"' >/run/tidegate/tidegate.toml
systemctl start tidegate.service
run_gated side --side --headroom 20% -- vmtool burn
enforces() { [ "$(tidegate status --json | json engine)" = sched_ext ]; }
soon 40 enforces || fail "the scheduler does not load: $(tidegate status)"
finish $side
rm /run/tidegate/tidegate.toml
systemctl stop tidegate.service
soon 10 gone || fail "left: $(ls -d $ROOT/tidegate-* 2>/dev/null) $(ours)"
