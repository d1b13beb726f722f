# what: a machine with systemd: up, with its bus, its own groups only, and nothing failed
# modes: precise smp
# userland: systemd
# tier: long 7.3
# seconds: 120
same "the first process" "$(cat /proc/1/comm)" systemd
settled() { [ "$(systemctl is-system-running)" != starting ]; }
until_true 60 settled || fail "still starting: $(systemctl list-jobs --no-legend | tr '\n' ' ')"
same "units that failed" "$(systemctl list-units --failed --no-legend --plain)" ""
measure up_after "$(systemctl show -P UserspaceTimestampMonotonic | awk '{ print $1 / 1e6 }')" s
dbus-send --system --print-reply --dest=org.freedesktop.systemd1 /org/freedesktop/systemd1 \
	org.freedesktop.systemd1.Manager.GetUnit string:tests.service | grep -q unit/tests_2eservice
same "the test's group" "$(cgroup_of $$)" /system.slice/tests.service/test
tops=$(cd $ROOT && ls -d */ | tr -d / | grep -v 'mount$' | sort | tr '\n' ' ')
same "groups at the top" "$tops" "init.scope system.slice "
