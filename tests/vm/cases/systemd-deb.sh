# what: the Debian package: installed, it runs and is enabled; an upgrade keeps gates limited at every moment; removed and purged, nothing is left
# modes: precise
# userland: systemd
# needs: tidegate deb
# seconds: 200
[ -e /vm/deb/new.deb ] || skip "no package: the host has no dpkg-dev"
# The bed's shell prefers its own applets, and has a dpkg among them; Debian's looks for its own tools by PATH.
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
	find /etc/systemd /run/systemd/system /run/systemd/transient /run/systemd/system.control 2>/dev/null | sort
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

group other
start other vmtool burn
other=$STARTED
tidegate set cgroup:/other class=side headroom=20% >/dev/null
tidegate run --side --headroom 20% --name job -- vmtool burn &
side=$!
gate_soon $side $SIDE
# Both by the shell alone: each process that looks is a burst of main.
limited() {
	for _group in $SIDE other; do
		read -r _quota _ <$ROOT/$_group/cpu.max && read -r _idle <$ROOT/$_group/cpu.idle || return 1
		[ "$_idle" = 1 ] && [ "$_quota" != max ] || return 1
	done
}
until_true 20 limited || fail "not limited: $(cat $ROOT/other/cpu.max $ROOT/$SIDE/cpu.max)"
looks=0
while [ ! -e /tmp/enough ]; do
	limited || echo "$(uptime): $_group: $_quota, idle $_idle" >>/tmp/unlimited
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
	tidegate show --json >/tmp/show
	[ "$(grep -c '"class": "side"' /tmp/show)" = 2 ]
}
until_true 10 taken_up || fail "not both gates: $(cat /tmp/show)"
sleep 2
touch /tmp/enough
wait $watching
[ ! -e /tmp/unlimited ] || fail "without limits during the upgrade: $(cat /tmp/unlimited)"
measure looks "$(cat /tmp/looks)" times
[ "$(cat /tmp/looks)" -gt 50 ] || fail "looked only $(cat /tmp/looks) times"

# A command that still runs stays held after the removal, what `set` changed is restored.
by_dpkg --remove tidegate
same "the processes of Tidegate" "$(ours)" ""
same "the limits that set had made" "$(cat $ROOT/other/cpu.max $ROOT/other/cpu.idle | tr '\n' ' ')" "max 100000 0 "
held || fail "the command that still runs is not held"
[ ! -e /usr/bin/tidegate ] || fail "the command is still there"
finish $side $other
rmdir $ROOT/other
rm /etc/tidegate/tidegate.toml

by_dpkg --purge tidegate
listing >/tmp/after
diff /tmp/before /tmp/after | grep "^[-+]" >/tmp/left || true
[ ! -s /tmp/left ] || fail "left behind: $(tr '\n' ' ' </tmp/left); $(grep -v '^dpkg: warning' /tmp/dpkg)"
same "the processes of Tidegate" "$(ours)" ""
