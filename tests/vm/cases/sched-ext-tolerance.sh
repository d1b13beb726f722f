# what: main takes every CPU: side work has its tolerance, 1 % and what is asked
# modes: precise
# kernels: 6.18 7.3
# tier: long
# needs: tidegate
# seconds: 150
group main
group side
sched_ext_on --gate 'cgroup:/main class=main headroom=30%' --gate 'cgroup:/side class=side'
into side vmtool count /tmp/turns &
one=$!
until_true 10 [ -s /tmp/turns ]
into main vmtool burn &
seen 10 main /tmp/turns
measure side_by_default "$(of /tmp/turns)" %
within "side beside a main that takes all" "$(of /tmp/turns)" 0.95 1.1
finish $one
sched_ext_off

sched_ext_on --gate 'cgroup:/main class=main headroom=30% tolerance=5%' --gate 'cgroup:/side class=side'
into side vmtool count /tmp/turns &
seen 10 main /tmp/turns
measure side_with_5_percent "$(of /tmp/turns)" %
within "side with a tolerance of 5 %" "$(of /tmp/turns)" 4.8 5.3
sched_ext_is_on
