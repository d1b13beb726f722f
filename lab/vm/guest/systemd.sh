# The tests' runner under systemd, as a service of it (tests.service). What a test starts carries
# `t-` before its name.
exec </dev/null >/dev/ttyS1 2>&1
export HOME=/tmp PATH=/vm/bin:/usr/bin:/usr/sbin
ip link set lo up

prepare() {
	rm -rf /tmp/* /run/tidegate /etc/tidegate
	# A group of the service, which systemd has delegated.
	HOME_GROUP=/sys/fs/cgroup/system.slice/tests.service/test
	mkdir -p "$HOME_GROUP"
}

# Ends what the test has left: its units, its processes, Tidegate and its groups.
sweep() {
	systemctl kill -s KILL tidegate.service 2>/dev/null
	systemctl stop 't-*' tidegate.service 2>/dev/null
	[ ! -d "$HOME_GROUP" ] || echo 1 >"$HOME_GROUP/cgroup.kill"
	for group in /sys/fs/cgroup/tidegate-*; do
		[ ! -d "$group" ] || echo 1 >"$group/cgroup.kill"
	done
	for pid in $(pidof tidegate); do kill -KILL "$pid" 2>/dev/null; done
	sleep 0.2
	for top in "$HOME_GROUP" /sys/fs/cgroup/tidegate-*; do
		[ ! -d "$top" ] || find "$top" -depth -type d -exec rmdir {} \; 2>/dev/null
	done
	find /run/systemd/system /run/systemd/transient /run/systemd/system.control /etc/systemd/system \
		-maxdepth 1 \( -name 't-*' -o -name 'tidegate*' \) -exec rm -rf {} + 2>/dev/null
	# A test of the package has put the bed's own command aside.
	if [ -e /vm/aside/tidegate ]; then
		PATH=/usr/sbin:/usr/bin:/vm/bin /usr/bin/dpkg --purge tidegate 2>/dev/null
		mv /vm/aside/tidegate /usr/bin/tidegate
	fi
	systemctl reset-failed 2>/dev/null
	systemctl daemon-reload
}

. /vm/runner.sh
poweroff -f
