# what: each callback's verified instructions are within a quarter of the recorded ones, and what a call costs is known
# modes: precise
# kernels: 6.18 7.3
# needs: tidegate
# seconds: 60

# `kernel program instructions nanoseconds` a line; "record" alone: it is made anew from what this test measures
# (`cargo xtask ext-cost --write`), so there is nothing to judge by.
BASELINE=/vm/ext-cost.tsv
SERIES=$(uname -r | cut -d. -f1,2)
recorded() { awk -v kernel="$SERIES" -v program="$1" '$1 == kernel && $2 == program { print $3 }' $BASELINE; }

ext_on --json --cost
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
	/"programs"/ { n = 0; inside = 1 }
	!inside { next }
	/"name"/ { gsub(/[" ]/, "", $2); name[++n] = $2 }
	/"verified_insns"/ { insns[n] = $2 + 0 }
	/"runs"/ { runs[n] = $2 + 0 }
	/"run_ns"/ { ns[n] = $2 + 0 }
	/"uptime_s"/ { inside = 0 }
	END { for (i = 1; i <= n; i++) print name[i], insns[i], runs[i], ns[i] }' /tmp/ext >/tmp/costs
[ "$(wc -l </tmp/costs)" -ge 19 ] || fail "the programs are not told: $(cat /tmp/costs)"
while read -r name insns runs ns; do
	measure "verified_$name" "$insns" instructions
	[ "$runs" = 0 ] || measure "cost_$name" $((ns / runs)) ns
done </tmp/costs

[ "$(cat $BASELINE)" != record ] || exit 0
bad=
while read -r name insns runs ns; do
	was=$(recorded "$name")
	echo "$name: $insns instructions verified, recorded ${was:-none}; $runs calls, $ns ns"
	# A few instructions more in a callback of a handful are none to speak of.
	if [ -z "$was" ]; then
		bad="$bad $name (not recorded)"
	elif [ "$insns" -gt $((was + was / 4 + 50)) ]; then
		bad="$bad $name ($insns for $was)"
	fi
done </tmp/costs
[ -z "$bad" ] || fail "verified instructions beyond 1.25 times the recorded:$bad; if that is meant: cargo xtask ext-cost --write"
