# what: each callback's verified instructions are within a quarter of the recorded ones, and what a call costs is known
# modes: precise
# kernels: 6.18 7.3
# tier: long 7.3
# needs: tidegate
# seconds: 90

# `kernel program instructions nanoseconds` a line; "record" alone: it is made anew from what this test measures
# (`cargo xtask ext-cost --write`), so there is nothing to judge by.
BASELINE=/vm/ext-cost.tsv
SERIES=$(uname -r | cut -d. -f1,2)
recorded() { awk -v kernel="$SERIES" -v program="$1" '$1 == kernel && $2 == program { print $3 }' $BASELINE; }

# What it walks for this machine of one CPU is less than for a large one with threads and caches, for which more is alive.
scheduler --verify 64,4 >/tmp/wide
echo "64 CPUs, 4 caches: verified $(awk '{ sum += $2 } END { print sum }' /tmp/wide)"
# What a user asks of this machine.
tidegate doctor --verify-ext --json >/tmp/own
same "programs that doctor verifies" "$(grep -c verified_insns /tmp/own)" "$(wc -l </tmp/wide)"
ext_on --json --cost
group a
echo +cpu >$ROOT/a/cgroup.subtree_control
group a/b
inside a/b vmtool hackbench 1 100
inside a/b vmtool build 4 100
sleep 2
ext_is_on
ext_off
# The last object's programs: one "name runs run_ns" a line.
ext_fields | awk -F: '
	/"programs"/ { n = 0; inside = 1 }
	!inside { next }
	/"name"/ { gsub(/[" ]/, "", $2); name[++n] = $2 }
	/"runs"/ { runs[n] = $2 + 0 }
	/"run_ns"/ { ns[n] = $2 + 0 }
	/"uptime_s"/ { inside = 0 }
	END { for (i = 1; i <= n; i++) if (runs[i]) print name[i], int(ns[i] / runs[i]) }' >/tmp/costs
[ "$(wc -l </tmp/wide)" -ge 19 ] || fail "the programs are not told: $(cat /tmp/wide)"
[ "$(wc -l </tmp/costs)" -ge 9 ] || fail "the programs' times are not told: $(cat /tmp/costs)"
while read -r name insns; do
	measure "verified_$name" "$insns" instructions
done </tmp/wide
while read -r name ns; do
	measure "cost_$name" "$ns" ns
done </tmp/costs

[ "$(cat $BASELINE)" != record ] || exit 0
bad=
while read -r name insns; do
	was=$(recorded "$name")
	echo "$name: $insns instructions verified, recorded ${was:-none}"
	# A few instructions more in a callback of a handful are none to speak of.
	if [ -z "$was" ]; then
		bad="$bad $name (not recorded)"
	elif [ "$insns" -gt $((was + was / 4 + 50)) ]; then
		bad="$bad $name ($insns for $was)"
	fi
done </tmp/wide
[ -z "$bad" ] || fail "verified instructions beyond 1.25 times the recorded:$bad; if that is meant: cargo xtask ext-cost --write"
