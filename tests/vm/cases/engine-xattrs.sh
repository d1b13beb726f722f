# what: attributes user.tidegate.* of a group give it terms as they are set, changed and removed, as far as its owner may
# modes: precise
# kernels: 6.18
# seconds: 40
has_max() { [ "$(cat $ROOT/$1/cpu.max 2>/dev/null)" = "$2" ]; }
has_idle() { [ "$(cat $ROOT/$1/cpu.idle 2>/dev/null)" = "$2" ]; }
alerts() { tidegate status --json | grep -q "$1"; }
mkdir -p /etc/tidegate
echo 'xattrs = "yes"' >/etc/tidegate/tidegate.toml
group early
vmtool xattr $ROOT/early user.tidegate.quota 20ms
tidegate agent run --service >/tmp/agent 2>&1 &
agent=$!
until_true 10 has_max early "20000 100000" || fail "what was set before the agent came does not count"
group late
vmtool xattr $ROOT/late user.tidegate.quota 30ms
until_true 2 has_max late "30000 100000" || fail "what was set later does not count"
vmtool xattr $ROOT/late user.tidegate.quota 40ms
until_true 2 has_max late "40000 100000" || fail "what was changed does not count"
vmtool xattr $ROOT/late user.tidegate.quota
until_true 2 has_max late "max 100000" || fail "what was removed still counts"
# A group that belongs to a user: side work, as that user may ask for, and nothing that takes from
# others.
group theirs
chown 1000 $ROOT/theirs
vmtool xattr $ROOT/theirs user.tidegate.class main
until_true 5 alerts "xattrs: of uid 1000: /theirs: class" || fail "a user's group became main work"
vmtool xattr $ROOT/theirs user.tidegate.class side
until_true 5 has_idle theirs 1 || fail "a user's group did not become side work"
vmtool xattr $ROOT/theirs user.tidegate.wieght 3
until_true 5 alerts "did you mean weight" || fail "a mistake is not told of"
kill $agent
wait $agent
has_idle theirs 0 || fail "the class stays"
has_max early "max 100000" || fail "the quota stays"
rm /etc/tidegate/tidegate.toml
