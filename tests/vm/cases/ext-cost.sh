# what: each callback's verified instructions are within their budget, and what a call costs is known
# modes: precise
# kernels: 6.18 7.3
# needs: tidegate
# seconds: 60

# What the verifier may walk, for each callback: about twice of what it walked when this was written (docs/ext.md), so
# that a change that makes it explode is seen here and not at a user's.
budget() {
	case $1 in
	enqueue) echo 60000 ;;
	dispatch) echo 60000 ;;
	init) echo 170000 ;; # with the callbacks of its timers: the headroom law
	*) echo 20000 ;;
	esac
}

echo 1 >/proc/sys/kernel/bpf_stats_enabled
ext_on --json
group a
echo +cpu >$ROOT/a/cgroup.subtree_control
group a/b
inside a/b vmtool hackbench 1 100
inside a/b vmtool build 4 100
sleep 2
ext_is_on
ext_off
# The last object's programs: one "name verified runs run_ns" a line.
awk -F '[:,]' '
	/"uptime_s"/ { n = 0 }
	/"name"/ { gsub(/[" ]/, "", $2); name[++n] = $2 }
	/"verified_insns"/ { insns[n] = $2 + 0 }
	/"runs"/ { runs[n] = $2 + 0 }
	/"run_ns"/ { ns[n] = $2 + 0 }
	END { for (i = 1; i <= n; i++) print name[i], insns[i], runs[i], ns[i] }' /tmp/ext >/tmp/costs
[ "$(wc -l </tmp/costs)" -ge 19 ] || fail "the programs are not told: $(cat /tmp/costs)"
while read -r name insns runs ns; do
	echo "$name: $insns instructions verified, $runs calls, $ns ns"
	measure "verified_$name" "$insns" instructions
	[ "$runs" = 0 ] || measure "cost_$name" $((ns / runs)) ns
	[ "$insns" -le "$(budget "$name")" ] || fail "$name: $insns instructions verified, more than $(budget "$name")"
done </tmp/costs
