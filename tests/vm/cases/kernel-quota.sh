# what: a write of cpu.max refills the pool; a child's quota above its parent's is taken and the least one holds
# modes: precise
# kernels: 6.18 7.3
# seconds: 40
group a
echo "2000 100000" >$ROOT/a/cpu.max
inside a vmtool burn &
sleep 1
SEEN=$(vmtool watch 5 a)
measure standing_2_of_100_ms "$(of a)" %
within "use of a standing 2 ms per 100 ms" "$(of a)" 1.5 3

# The same value again every 10 ms: each write hands out a new quota, and up to a tick goes by uncharged.
(while :; do
	echo "2000 100000" >$ROOT/a/cpu.max
	sleep 0.01
done) &
writer=$!
sleep 1
SEEN=$(vmtool watch 5 a)
kill $writer
measure rewritten_each_10_ms "$(of a)" %
within "use while the same quota is rewritten" "$(of a)" 15 60

# Version 2 takes what version 1 refuses, and applies the minimum.
mkdir $ROOT/b
echo "+cpu" >$ROOT/b/cgroup.subtree_control
mkdir $ROOT/b/child
echo "10000 100000" >$ROOT/b/cpu.max
echo "80000 100000" >$ROOT/b/child/cpu.max
inside b/child vmtool burn &
sleep 1
SEEN=$(vmtool watch 5 b)
measure child_80_in_parent_10 "$(of b)" %
within "use of a child with 80 % in a parent with 10 %" "$(of b)" 9 12

# The least period and the least quota that the kernel takes are 1 ms.
if echo "999 100000" 2>/dev/null >$ROOT/a/cpu.max; then fail "a quota below 1 ms was taken"; fi
