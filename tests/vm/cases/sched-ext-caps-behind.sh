# what: under sched_ext a task that may leave the background does so, though hundreds of heavier background tasks wait before it
# modes: precise
# tier: long
# seconds: 60
group soft zero
echo 1 >$ROOT/soft/cpu.weight
echo 10000 >$ROOT/zero/cpu.weight
sched_ext_on --gate 'cgroup:/soft cap_soft=200‰' --gate 'cgroup:/zero cap_soft=0'
start zero vmtool threads 600
zero=$STARTED
start soft vmtool burn
sleep 2
see vmtool clock 3 soft zero
measure soft_200_behind_600 "$(of soft)" %
within "200 ‰ behind 600 tasks of the background" "$(of soft)" 19.8 20.2
within "600 tasks of the background" "$(of zero)" 78.5 80.2
finish $zero
sched_ext_off
