# what: doctor says of this kernel what docs/support.md says (written by cargo xtask support --write)
# modes: precise
# kernels: 6.18 7.3
# needs: tidegate
tidegate doctor --json >/tmp/doctor
case $(uname -r) in
6.18.*)
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
	;;
7.3.*)
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
	;;
*) skip "the table has no column for $(uname -r)" ;;
esac
awk -F'"' '/^      "name":/ { name = $4 } /^      "now":/ { print name ": " $4 }' /tmp/doctor >/tmp/found
cat /tmp/found
same "what doctor says" "$(cat /tmp/found)" "$(cat /tmp/wanted)"
