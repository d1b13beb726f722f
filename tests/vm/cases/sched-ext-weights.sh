# what: the sched_ext engine loads, and keeps cpu.weight (flat and nested), cpu.idle and nice levels within 1 %, whatever side work a group has
# modes: precise
# seconds: 90
group a b b/side
sched_ext_on --gate 'cgroup:/b/side class=side headroom=20%'
echo +cpu >$ROOT/b/cgroup.subtree_control
group b/x b/y
echo 300 >$ROOT/b/cpu.weight
echo 300 >$ROOT/b/y/cpu.weight
inside a vmtool burn &
inside b/x vmtool burn &
inside b/y vmtool burn &
sleep 1
see vmtool watch 5 a b b/x b/y
measure weight_100_of_400 "$(of a)" %
measure nested_100_of_400 "$(of b/x)" %
within "weight 100 beside 300" "$(of a)" 24.75 25.25
within "weight 100 beside 300, nested in 300" "$(of b/x)" 18.56 18.94
within "weight 300 beside 100, nested in 300" "$(of b/y)" 55.69 56.81

# A change while all run.
echo 100 >$ROOT/b/cpu.weight
sleep 1
see vmtool watch 5 a b
measure rewritten_100_of_200 "$(of a)" %
within "weight 100 beside 100" "$(of a)" 49.5 50.5

# Side work in a group takes nothing from the main work of the group.
echo 400 >$ROOT/b/side/cpu.weight
inside b/side vmtool burn &
sleep 1
see vmtool watch 5 a b b/side
measure beside_side_100_of_200 "$(of a)" %
within "weight 100 beside 100 that has side work, too" "$(of a)" 49 50.5
sched_ext_is_on
cat /tmp/sched_ext
