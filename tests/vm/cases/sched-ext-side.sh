# what: side work on two CPUs: it runs while main is away and while main takes all, pinned side tasks run too, main displaces them, none is lost
# modes: smp
# kernels: 6.18 7.3
# tier: long
# needs: tidegate
# seconds: 120
group main
group side
sched_ext_on --gate 'cgroup:/main class=main headroom=30%' --gate 'cgroup:/side class=side'
for n in 1 2 3 4; do into side vmtool burn & done
into side taskset 1 vmtool burn &
into side taskset 2 vmtool burn &
sleep 3
SEEN=$(vmtool watch 5 main side)
echo "$SEEN"
measure side_alone "$(of side)" %
# What the host takes from the guest counts as main's; what counts here is that side runs, and not on all.
within "side alone" "$(of side)" 3 80
into main vmtool duty 50 10000 &
into main vmtool threads 2 &
hogs=$!
sleep 3
SEEN=$(vmtool watch 8 main side)
echo "$SEEN"
measure side_beside_hogs "$(of side)" %
within "side beside a main that takes all" "$(of side)" 0.2 20
finish $hogs
sched_ext_is_on
sched_ext_off
