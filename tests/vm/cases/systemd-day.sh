# what: an operator's day with the Debian package: a policy with a mistake, fixed, observed, tried, confirmed; work that starts later; an upgrade that keeps all limits; nothing left after the purge
# modes: precise
# kernels: 6.18
# userland: systemd
# needs: deb
# seconds: 200
[ -e /vm/deb/new.deb ] || skip "no package: the host has no dpkg-dev"
# The bed's shell prefers its own applets, and has a dpkg among them; Debian's looks for its own
# tools by PATH.
PATH=/usr/sbin:/usr/bin:/vm/bin
mkdir -p /vm/aside
mv /usr/bin/tidegate /vm/aside/tidegate
# The guest has no passwd package.
printf '#!/bin/sh\nsed -i "/^$1:/d" /etc/group\n' >/vm/bin/groupdel
chmod 755 /vm/bin/groupdel

by_dpkg() { /usr/bin/dpkg "$@" >/tmp/dpkg 2>&1 || fail "dpkg $*: $(grep -v '^dpkg: warning' /tmp/dpkg | tail -n 5)"; }

# Everything but what dpkg, sysusers and systemd keep for themselves.
listing() {
	find /etc /usr /var /run \( -path /run/systemd -o -path /run/log -o -path /run/dbus -o -path /var/lib/dpkg -o -path /var/lib/systemd \) -prune -o -print |
		grep -v -e '^/etc/.*-$' -e '^/etc/gshadow' -e '^/etc/.pwd.lock' -e '^/var/log/dpkg.log' | sort
	find /etc/systemd /run/systemd/system /run/systemd/transient /run/systemd/system.control -mindepth 1 2>/dev/null | sort
	cat /etc/group
	find $ROOT -type d -name '*tidegate*'
}
listing >/tmp/before
by_dpkg --install /vm/deb/old.deb
same "the service" "$(systemctl is-active tidegate) $(systemctl is-enabled tidegate)" "active enabled"
same "how it was started" "$(tidegate status --json | json mode)" service
grep -q '^tidegate:' /etc/group || fail "no group tidegate"

# What an administrator has disabled stays so, and a file in /etc/tidegate is not the package's.
systemctl disable --quiet --now tidegate
/var/lib/dpkg/info/tidegate.postinst configure 0.0.1-1
same "the disabled service" "$(systemctl is-active tidegate) $(systemctl is-enabled tidegate)" "inactive disabled"
cp /usr/share/doc/tidegate/examples/tidegate.toml /etc/tidegate/tidegate.toml
systemctl enable --quiet --now tidegate

# The day's policy; $1 is the mode of its first rule, $2 the name of a term.
FILE=/etc/tidegate/tidegate.toml.d/10-day.toml
policy() {
	cat >$FILE <<-TOML
		[[rule]]
		name = "backups"
		match = { unit = "backup-*.service" }
		mode = "$1"
		terms = { class = "side", $2 = 50, headroom = "20%" }

		[[rule]]
		name = "encoders"
		match = { exe = "/vm/encoder" }
		terms = { class = "side" }
	TOML
}
BATCH=system.slice/backup-0.service
LATER=system.slice/backup-1.service
values() { cat $ROOT/$BATCH/cpu.max $ROOT/$BATCH/cpu.weight $ROOT/$BATCH/cpu.idle | tr '\n' ' '; }
FRESH="max 100000 100 0 "
is_fresh() { [ "$(values)" = "$FRESH" ]; }
# By the shell alone: each process that looks is a burst of main.
limited() {
	for _group; do
		read -r _quota _ <$ROOT/$_group/cpu.max && read -r _idle <$ROOT/$_group/cpu.idle || return 1
		[ "$_idle" = 1 ] && [ "$_quota" != max ] || return 1
	done 2>/dev/null
}
for _unit in backup-0 backup-1 t-neighbour; do
	printf '[Service]\nExecStart=/usr/bin/vmtool burn\n' >/run/systemd/system/$_unit.service
done
systemctl daemon-reload
systemctl start backup-0.service
same "the unit before" "$(values)" "$FRESH"
mkdir -p /etc/tidegate/tidegate.toml.d

# A mistake is told with its place, and the policy in force stays.
policy observe weihgt
code=0
tidegate policy check 2>/tmp/said || code=$?
same "how check ends" $code 2
grep -q "^tidegate: weihgt: $FILE:5:27: no such term; did you mean weight?" /tmp/said || fail "check says: $(cat /tmp/said)"
! systemctl reload tidegate 2>/tmp/said || fail "the mistake was reloaded"
# The conditions of two alerts, by value; a real Prometheus, which is too large for the guest, has
# them in crates/tidegate/tests/all/metrics.rs.
metric() { tidegate metrics | sed -n "s/^tidegate_$1 //p"; }
same "the condition of PolicyRejected" "$(metric policy_last_reload_success)" 0.0
tidegate policy show --json >/tmp/policy
! grep -q '"name": "backups"' /tmp/policy || fail "the policy in force: $(cat /tmp/policy)"
# Nor does it keep the next agent from its start.
systemctl restart tidegate
same "the condition of PolicyRejected" "$(metric policy_last_reload_success)" 0.0
generation=$(tidegate policy show --json | json generation)

# Mended, it only says what it would write.
policy observe weight
systemctl reload tidegate
same "the condition of PolicyRejected" "$(metric policy_last_reload_success)" 1.0
same "the generation" "$(tidegate policy show --json | json generation)" $((generation + 1))
tidegate policy show >/tmp/said
grep -q "unit:backup-0.service would have class=side headroom=20%.* weight=50" /tmp/said && grep -q "$BATCH/cpu.idle: 0 -> 1" /tmp/said ||
	fail "observed: $(cat /tmp/said)"
same "the unit, observed" "$(values)" "$FRESH"

# A trial that nobody confirms, and one that is.
policy enforce weight
code=0
tidegate policy diff >/tmp/said || code=$?
same "the exit code of a diff" $code 1
grep -q "^+ unit:backup-0.service \[backups\]: class=side headroom=20%.* weight=50" /tmp/said || fail "the diff: $(cat /tmp/said)"
same "the unit after a diff" "$(values)" "$FRESH"
tidegate policy apply --for 5s >/tmp/said
limited $BATCH || fail "on trial: $(values)"
until_true 10 is_fresh || fail "after the trial: $(values)"
same "systemd's quota after the trial" "$(systemctl show -P CPUQuotaPerSecUSec backup-0)" infinity
tidegate policy apply --for 1h >/tmp/said
tidegate policy confirm >/tmp/said
limited $BATCH || fail "confirmed: $(values)"

# What starts later.
# within_a_second WHAT COMMAND...
within_a_second() {
	_what=$1
	shift
	now
	_from=$NOW
	until_true 5 "$@" || fail "$_what is not gated: $(tidegate policy show)"
	now
	[ $((NOW - _from)) -le 100 ] || fail "$_what was gated only after $((NOW - _from)) hundredths of a second"
}
systemctl start backup-1.service
within_a_second "a unit that started later" limited $LATER
cp /usr/bin/vmtool /vm/encoder
group enc
start enc /vm/encoder burn
encoder=$STARTED
ENCODER=enc/tidegate-encoder=
within_a_second "a program that started later" limited $ENCODER

# systemd writes its own values when a neighbour starts after a reload: never more than the floor,
# and ours come back.
for _turn in 1 2; do
	systemctl daemon-reload
	systemctl start t-neighbour.service
	limited $BATCH $LATER || fail "after a daemon-reload: $(values)"
	systemctl stop t-neighbour.service
	sleep 2
done
tidegate status >/tmp/said
! grep -q "left alone" /tmp/said || fail "systemd was taken for an adversary: $(cat /tmp/said)"

group other
start other vmtool burn
other=$STARTED
tidegate set cgroup:/other class=side headroom=20% >/dev/null
run_gated side --side --headroom 20% --name job -- vmtool burn
ALL="$SIDE other $BATCH $LATER $ENCODER"
until_true 20 limited $ALL || fail "not limited: $_group: $_quota, idle $_idle"

# Another program writes over a limit. Not the quota: the loop may write its own again before the
# agent sees the other.
outside_writes() { metric 'events_total{kind="outside_write"}'; }
same "outside writes before" "$(outside_writes)" 0.0
echo 0 >$ROOT/other/cpu.idle
is_told() { [ "$(outside_writes)" != 0.0 ]; }
until_true 10 is_told || fail "the condition of OutsideWriter: $(outside_writes), idle $(cat $ROOT/other/cpu.idle)"
until_true 10 limited $ALL || fail "not limited after an outside write: $_group: $_quota, idle $_idle"

# The journal has the day's events, each by its kind and as an entry of its own, not as a line of
# the log.
for kind in policy.rejected policy.applied policy.confirmed policy.rolled_back gate.created outside_write; do
	journalctl --quiet --output cat --lines 1 _TRANSPORT=journal SYSLOG_IDENTIFIER=tidegate TIDEGATE_EVENT=$kind >/tmp/said
	[ -s /tmp/said ] || fail "the journal has no $kind"
done

looks=0
while [ ! -e /tmp/enough ]; do
	limited $ALL || echo "$(uptime): $_group: $_quota, idle $_idle" >>/tmp/unlimited
	looks=$((looks + 1))
	echo $looks >/tmp/looks
	sleep 0.02
done &
watching=$!

before=$(agent)
from=$(uptime)
by_dpkg --install /vm/deb/new.deb
measure upgrade "$(echo "$(uptime) $from" | awk '{ print $1 - $2 }')" s
same "the version" "$(/usr/bin/dpkg-query -W -f '${Version}' tidegate)" 0.0.2-1
same "the service" "$(systemctl is-active tidegate) $(systemctl is-enabled tidegate)" "active enabled"
[ "$(agent)" != "$before" ] || fail "the old agent still runs"
same "what runs" "$(readlink /proc/"$(agent)"/exe)" /usr/bin/tidegate
taken_up() {
	tidegate status --json >/tmp/show
	[ "$(grep -c '"class": "side"' /tmp/show)" = 5 ]
}
until_true 10 taken_up || fail "not all gates: $(cat /tmp/show)"
sleep 2
touch /tmp/enough
wait $watching
[ ! -e /tmp/unlimited ] || fail "without limits during the upgrade: $(cat /tmp/unlimited)"
measure looks "$(cat /tmp/looks)" times
[ "$(cat /tmp/looks)" -gt 50 ] || fail "looked only $(cat /tmp/looks) times"

# The next agent's first generation is the same policy; what stops and starts again is gated again.
tidegate policy show --json >/tmp/policy
same "the generation of the next agent" "$(json generation </tmp/policy)" 1
same "files and policy in force differ" "$(json files_differ </tmp/policy)" false
same "a trial" "$(json trial_seconds_left </tmp/policy)" null
same "what a diff says" "$(tidegate policy diff)" "no gate would change"
systemctl stop backup-1.service
systemctl start backup-1.service
within_a_second "a unit that started again" limited $LATER

# A command that still runs stays held after the removal, what rules and `set` changed is restored.
by_dpkg --remove tidegate
same "the processes of Tidegate" "$(ours)" ""
same "the limits that set had made" "$(cat $ROOT/other/cpu.max $ROOT/other/cpu.idle | tr '\n' ' ')" "max 100000 0 "
same "the limits that a rule had made" "$(values)" "$FRESH"
same "systemd's quota" "$(systemctl show -P CPUQuotaPerSecUSec backup-0)" infinity
same "the group of the program" "$(cgroup_of $encoder)" /enc
held || fail "the command that still runs is not held"
[ ! -e /usr/bin/tidegate ] || fail "the command is still there"
finish $side $other $encoder
rmdir $ROOT/other $ROOT/enc
systemctl stop backup-0.service backup-1.service
rm /run/systemd/system/backup-0.service /run/systemd/system/backup-1.service /run/systemd/system/t-neighbour.service
rm -r /etc/tidegate/tidegate.toml /etc/tidegate/tidegate.toml.d

by_dpkg --purge tidegate
listing >/tmp/after
diff /tmp/before /tmp/after | grep "^[-+]" >/tmp/left || true
[ ! -s /tmp/left ] || fail "left behind: $(tr '\n' ' ' </tmp/left); $(grep -v '^dpkg: warning' /tmp/dpkg)"
same "the processes of Tidegate" "$(ours)" ""
