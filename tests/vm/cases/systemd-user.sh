# what: without root or an agent side work is in the idle class of a scope of the user's systemd; without that, SCHED_IDLE
# modes: smp
# userland: systemd
# kernels: 6.18 7.3
# needs: tidegate
# seconds: 60
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
	exec start-stop-daemon --start --chuid nobody --startas "$_program" -- "$@"
}

as_user tidegate run --quota 50ms --side -- vmtool burn 2>/tmp/said &
side=$!
scope() { find $HOME_OF -name 'tidegate-*.scope'; }
until_true 10 sh -c "[ -n \"\$(find $HOME_OF -name 'tidegate-*.scope')\" ]" || fail "no scope: $(cat /tmp/said; find $HOME_OF -type d)"
until_true 10 grep -q "idle class of a scope of your systemd, SCHED_IDLE" /tmp/said || fail "it says: $(cat /tmp/said)"
! grep -q "not in force" /tmp/said || fail "it says: $(cat /tmp/said)"
same "its class" "$(cat "$(scope)/cpu.idle")" 1
same "its quota" "$(cat "$(scope)/cpu.max")" "50000 100000"
same "its process" "$(cat "$(scope)/cgroup.procs")" "$side"
kill $side
wait $side || :
until_true 10 sh -c "[ -z \"\$(find $HOME_OF -name 'tidegate-*.scope')\" ]" || fail "the scope stays"

systemctl stop of-nobody.service
(as_user tidegate run --quota 50ms --side -- true 2>/tmp/said)
grep -q "side work by SCHED_IDLE, nice 19, idle I/O" /tmp/said || fail "it says: $(cat /tmp/said)"
grep -q "not in force: quota" /tmp/said || fail "it says: $(cat /tmp/said)"
