# what: doctor finds cgroup v2, BPF sensing and an enforceable headroom
# modes: precise smp
# kernels: 6.18 7.3
# tier: long 7.3
# needs: tidegate
tidegate doctor || fail "doctor says that headroom cannot be enforced: exit code $?"
tidegate doctor --json >/tmp/doctor
[ -s /tmp/doctor ] || fail "doctor --json printed nothing"
same "groups after doctor" "$(ls -d $ROOT/tidegate-* 2>/dev/null)" ""
