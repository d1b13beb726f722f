# what: the sched_ext engine keeps cpu.max within 0.5 % over 10 s: set before and while it runs, nested, overcommitted, rewritten
# modes: precise
# tier: long
# seconds: 180
group before
echo "20000 100000" >$ROOT/before/cpu.max
inside before vmtool burn &
sched_ext_on --json
group a
inside a vmtool burn &
sleep 1
echo "15000 50000" >$ROOT/a/cpu.max
sleep 1
see vmtool watch 10 before a
sched_ext_is_on
measure at_load_20_of_100_ms "$(of before)" %
measure while_it_runs_15_of_50_ms "$(of a)" %
within "20 ms in 100 ms" "$(of before)" 19.9 20.1
within "15 ms in 50 ms" "$(of a)" 29.85 30.15

# Nested: the child's own quota, and two siblings that together may have more than their parent.
group b
echo +cpu >$ROOT/b/cgroup.subtree_control
group b/x b/y
echo "30000 100000" >$ROOT/b/cpu.max
echo "10000 100000" >$ROOT/b/x/cpu.max
inside b/x vmtool burn &
sleep 1
see vmtool watch 10 b b/x
measure nested_10_in_30 "$(of b/x)" %
within "10 ms nested in 30 ms" "$(of b/x)" 9.95 10.05
echo "25000 100000" >$ROOT/b/x/cpu.max
echo "25000 100000" >$ROOT/b/y/cpu.max
inside b/y vmtool burn &
sleep 1
see vmtool watch 10 b b/x b/y
measure overcommitted_2x25_in_30 "$(of b)" %
within "two of 25 ms in 30 ms" "$(of b)" 29.85 30.15
within "one of two of 25 ms in 30 ms" "$(of b/x)" 14 16

# The same value again every 10 ms gains nothing.
(while :; do
	echo "15000 50000" >$ROOT/a/cpu.max
	sleep 0.01
done) &
writer=$!
see vmtool watch 10 a
kill $writer
measure rewritten_each_10_ms "$(of a)" %
within "15 ms in 50 ms, rewritten" "$(of a)" 29.7 30.15

# Without a quota it runs again.
echo "max 50000" >$ROOT/a/cpu.max
sleep 0.2
SEEN=$(vmtool watch 1 a)
within "a group whose quota was lifted" "$(of a)" 40 60
sched_ext_is_on
