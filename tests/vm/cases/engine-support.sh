# what: doctor finds an enforceable headroom, leaves no group, and says of this kernel what docs/support.md says
# modes: precise smp
tidegate doctor || fail "doctor says that headroom cannot be enforced: exit code $?"
tidegate doctor --json >/tmp/doctor
same "groups after doctor" "$(ls -d $ROOT/tidegate-* 2>/dev/null)" ""
awk -F'"' '/^      "name":/ { name = $4 } /^      "now":/ { print name ": " $4 }' /tmp/doctor >/tmp/found
cat >/tmp/wanted <<'END'
headroom: yes
objective: yes
tolerance: yes
weight: yes
idle class: yes
lease: yes
quota, period: yes
burst: yes
hard caps: yes
soft caps: yes
latency hints: yes
slice: no
END
same "what doctor says" "$(cat /tmp/found)" "$(cat /tmp/wanted)"
