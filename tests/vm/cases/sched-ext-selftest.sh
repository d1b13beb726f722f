# what: the kernel's own tests of cgroups' CPU files (tools/testing/selftests/cgroup/test_cpu.c) pass under sched_ext where they pass under EEVDF
# modes: precise wide
# tier: long
# needs: test_cpu
# seconds: 600
command -v test_cpu >/dev/null || skip "no test_cpu: set TIDEGATE_KERNEL_SOURCE to a kernel's source (apt-get install linux-source-7.3)"

# Its groups are made at the root, so the CPU controller is on there.
# selftest FILE: a line for each test: ok or not ok, and its name.
selftest() {
	test_cpu >/tmp/out 2>&1 || true
	sed -n 's/^\(ok\|not ok\) [0-9]* *-* *\(.*\)/\1 \2/p' /tmp/out >"$1"
	[ -s "$1" ] || { cat /tmp/out; fail "test_cpu says nothing"; }
}

case $MODE in wide) counts="1 4" ;; *) counts=1 ;; esac
for many in $counts; do
	[ "$many" = 1 ] || cpus 2 4 6
	selftest /tmp/eevdf
	sched_ext_on
	selftest /tmp/own
	sched_ext_off
	sed "s/^/EEVDF on $many: /" /tmp/eevdf
	sed "s/^/sched_ext on $many: /" /tmp/own
	measure "eevdf_passed_on_$many" "$(grep -c '^ok' /tmp/eevdf)" tests
	measure "sched_ext_passed_on_$many" "$(grep -c '^ok' /tmp/own)" tests
	grep '^ok' /tmp/eevdf | grep -vxF -f /tmp/own >/tmp/worse || true
	[ ! -s /tmp/worse ] || fail "on $many CPUs pass under EEVDF alone: $(tr '\n' ';' </tmp/worse)"
done
