# what: a rule for users' slices: a user above the soft cap yields to others, and has all that nobody else wants
# modes: smp
# userland: systemd
# tier: long
# seconds: 120
mkdir -p /etc/tidegate/tidegate.toml.d
cat >/etc/tidegate/tidegate.toml.d/50-users.toml <<POLICY
[[rule]]
name  = "users"
match = { unit = "user-*.slice" }
terms = { cap_soft = "500‰" }
POLICY
tidegate agent run >/tmp/agent.log 2>&1 &
until_true 15 agent >/dev/null || fail "no agent: $(cat /tmp/agent.log)"
# session NUMBER: a session's scope in that user's slice, as logind makes it. user@.service, which
# has the cpu controller, makes systemd hand it down to the slice.
session() {
	systemd-run --quiet --scope --unit="session-$1" --slice="user-$1.slice" --property=CPUWeight=100 vmtool burn &
}
session 1001
gates() { tidegate status --json | tr ',' '\n' | grep -c '"name": *"user-[0-9]*"' || :; }
has() { [ "$(gates)" = "$1" ]; }
until_true 15 has 1 || fail "gates: $(tidegate status)"
# A user that logs in later has a gate as well.
session 1002
session 1003
until_true 15 has 3 || fail "gates: $(tidegate status)"
used() { awk '/^usage_usec/ { print $2 }' "$ROOT/user.slice/user-$1.slice/cpu.stat"; }
tidegate status
before=$(used 1001)
sleep 4
echo "a third of two CPUs each: $((($(used 1001) - before) / 40)) ‰"
# Alone, a user has more than the soft cap.
systemctl stop session-1002.scope session-1003.scope
sleep 2
before=$(used 1001)
sleep 4
alone=$((($(used 1001) - before) / 4000))
measure alone_permille "$alone" permille
[ "$alone" -ge 800 ] || fail "alone the user has $alone ‰ of a CPU"
systemctl stop session-1001.scope
tidegate agent stop
