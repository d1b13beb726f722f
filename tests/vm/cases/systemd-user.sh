# what: without root side work has an agent of the user's own below the user's systemd; without that, the lowest levels
# modes: smp
# userland: systemd
# seconds: 120
echo 'nobody:x:65534:65534::/:/bin/sh' >>/etc/passwd
mkdir -p /run/of-nobody
chown 65534:65534 /run/of-nobody
# As user@.service, without PAM and logind.
cat >/run/systemd/system/of-nobody.service <<UNIT
[Service]
User=nobody
Type=notify
Environment=XDG_RUNTIME_DIR=/run/of-nobody HOME=/run/of-nobody
ExecStart=/usr/lib/systemd/systemd --user
Slice=user.slice
Delegate=cpu memory pids
DelegateSubgroup=init.scope
UNIT
# Its bus, as the package dbus-user-session has it.
mkdir -p /run/systemd/user/sockets.target.wants
cat >/run/systemd/user/dbus.socket <<UNIT
[Socket]
ListenStream=%t/bus
UNIT
cat >/run/systemd/user/dbus.service <<UNIT
[Service]
Type=notify
ExecStart=/usr/bin/dbus-daemon --session --address=systemd: --nofork --nopidfile --systemd-activation --syslog-only
UNIT
ln -s /run/systemd/user/dbus.socket /run/systemd/user/sockets.target.wants/
systemctl daemon-reload
systemctl start of-nobody.service || fail "no user manager: $(journalctl -u of-nobody.service --no-pager | tail -n 5)"
HOME_OF=$ROOT/user.slice/of-nobody.service
export XDG_RUNTIME_DIR=/run/of-nobody
as_user() {
	_program=$(command -v "$1")
	shift
	exec start-stop-daemon --start --pidfile /run/none --chuid nobody --startas "$_program" -- "$@"
}

as_user tidegate run --quota 50ms --headroom 30% --side -- vmtool burn 2>/tmp/said &
side=$!
OF_SIDE=$HOME_OF/$SIDE
in_users_gate() { cgroup_of "$1" | grep -q "/of-nobody.service/$SIDE/"; }
until_true 20 in_users_gate $side || fail "it is in $(cgroup_of $side): $(cat /tmp/said; tail -n 3 /run/of-nobody/tidegate/agent.log)"
same "the class of side work" "$(cat $OF_SIDE/cpu.idle)" 1
same "its quota" "$(cat $ROOT$(cgroup_of $side)/cpu.max)" "50000 100000"
own() { (as_user tidegate "$@"); }
own status
agent=$(own status --json | json pid)
guardian=$(own status --json | json guardian_pid)
for one in $agent $guardian; do
	same "the user of $one" "$(stat -c %u /proc/$one)" 65534
	cgroup_of $one | grep -q '/of-nobody.service/.*run-tidegate-.*scope$' || fail "$one is in $(cgroup_of $one)"
done
has_quota() { [ "$(cut -d' ' -f1 $OF_SIDE/cpu.max)" != max ]; }
until_true 10 has_quota || fail "no headroom: $(own explain)"

# A process of a session, and what it has started.
(as_user sh -c 'vmtool burn & exec vmtool burn') &
other=$!
child() { grep -l "^PPid:.$other\$" /proc/[0-9]*/status 2>/dev/null | cut -d/ -f3; }
has_child() { [ -n "$(child)" ]; }
until_true 10 has_child || fail "no child"
child=$(child)
own set pid:$other class=side
for one in $other $child; do
	cgroup_of $one | grep -q "/of-nobody.service/" || fail "$one is in $(cgroup_of $one)"
done
kill $other $child

# Another user, and the files of a user's agent.
! TIDEGATE_RUN_DIR=/run/of-nobody/tidegate start-stop-daemon --start --pidfile /run/none --chuid 1 \
	--startas "$(command -v tidegate)" -- status || fail "it answers to others"
same "who can enter its directory" "$(stat -c %a /run/of-nobody/tidegate)" 700

# Both die: the next agent takes over what the last one left.
kill -9 $guardian $agent
own status && fail "it is still there"
held_still=$(cut -d' ' -f1 $OF_SIDE/cpu.max)
[ "$held_still" != max ] || fail "the quota went with the agent"
(as_user tidegate run --side -- true)
until_true 10 own status || fail "no agent came back"
until_true 10 in_users_gate $side || fail "it is in $(cgroup_of $side)"
# The agent dies alone: the guardian sees to it.
kill -9 "$(own status --json | json pid)"
until_true 10 own status || fail "the guardian started no agent"
kill $side
wait $side || :
gone_there() { [ -z "$(find $HOME_OF -name 'tidegate-*' -o -name 'run-tidegate-*')" ]; }
until_true 15 gone_there || fail "left behind: $(find $HOME_OF -name '*tidegate*'), $(ours)"

systemctl stop of-nobody.service
(as_user tidegate run --quota 50ms --side -- true 2>/tmp/said)
grep -q "side work by nice 19, slices of 20 ms, idle I/O" /tmp/said || fail "it says: $(cat /tmp/said)"
grep -q "not in force: quota" /tmp/said || fail "it says: $(cat /tmp/said)"
