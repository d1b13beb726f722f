# what: under sched_ext one task has a cap of its own, hard or soft, with all that it forks
# modes: precise
# kernels: 6.18 7.3
# needs: tidegate
# tier: long
# seconds: 180
for name in hard forks soft free; do group $name; done
start hard vmtool count /tmp/hard
hard=$STARTED
# A shell that forks once it is told to; what it forks is under its cap.
start forks sh -c 'until [ -e /tmp/go ]; do sleep 0.1; done; for i in 1 2; do vmtool burn & done; wait'
forks=$STARTED
start soft vmtool burn
soft=$STARTED
start free vmtool burn
free=$STARTED
sched_ext_on --json --gate "pid:$hard cap_hard=200‰" --gate "pid:$forks cap_hard=100‰" --gate "pid:$soft cap_soft=0"
touch /tmp/go
# What they took before is paid back first.
sleep 3
SEEN=$(vmtool clock 5 hard forks soft free /tmp/hard)
echo "$SEEN"
measure hard_200 "$(of hard)" %
# What it gets done is less: switches and interrupts are its own.
measure hard_200_by_work "$(of /tmp/hard)" %
measure forks_100 "$(of forks)" %
measure soft_0_beside_hogs "$(of soft)" %
within "a task of 200‰" "$(of hard)" 19.9 20.1
# 300 parkings a second, 15 us each, are its own.
within "the work that a task of 200‰ does" "$(of /tmp/hard)" 19.4 20
within "what a task of 100‰ has forked" "$(of forks)" 9.9 10.1
within "a task of the background beside a hog" "$(of soft)" 0 0.1
within "a task without a cap" "$(of free)" 69 70.2
# With nobody beside it, the background has what is left.
finish $free
sleep 1
SEEN=$(vmtool clock 3 soft hard)
echo "$SEEN"
measure soft_0_alone "$(of soft)" %
within "a task of the background in what nobody wants" "$(of soft)" 69 70.2
sched_ext_is_on
for task in $hard $forks $soft; do
	tail -n 1 /tmp/sched_ext | grep -q "\"pid\":$task," || fail "the statistics have no cap of task $task"
done
sched_ext_off
SEEN=$(vmtool watch 2 /tmp/hard)
within "what was a task of 200‰, once the scheduler is gone" "$(of /tmp/hard)" 22 60
