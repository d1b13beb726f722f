# what: under ext one task has a cap of its own, hard or soft, with all that it forks
# modes: precise
# kernels: 6.18 7.3
# needs: tidegate
# tier: long 6.18
# seconds: 180
# No such task: nothing is loaded.
code=0
tidegate ext --task '4000000 cap_hard=200‰' 2>/tmp/said || code=$?
same "the exit code for a task that is not there" "$code" 5
same "the state of sched_ext" "$(ext_state)" disabled

group tasks
start tasks vmtool count /tmp/hard
hard=$STARTED
# A shell that forks once it is told to; what it forks is under its cap.
start tasks sh -c 'until [ -e /tmp/go ]; do sleep 0.1; done; for i in 1 2; do vmtool count /tmp/fork$i & done; wait'
forks=$STARTED
start tasks vmtool count /tmp/soft
soft=$STARTED
start tasks vmtool count /tmp/free
free=$STARTED
ext_on --json --task "$hard cap_hard=200‰" --task "pid:$forks cap_hard=100‰" --task "$soft cap_soft=0"
touch /tmp/go
# What they took before is paid back first.
sleep 3
SEEN=$(vmtool watch 5 /tmp/hard /tmp/fork1 /tmp/fork2 /tmp/soft /tmp/free)
echo "$SEEN"
forked=$(awk -v a="$(of /tmp/fork1)" -v b="$(of /tmp/fork2)" 'BEGIN { print a + b }')
measure hard_200 "$(of /tmp/hard)" %
measure forks_100 "$forked" %
measure soft_0_beside_hogs "$(of /tmp/soft)" %
within "a task of 200‰" "$(of /tmp/hard)" 19.5 20.1
within "what a task of 100‰ has forked" "$forked" 9.5 10.1
within "a task of the background beside a hog" "$(of /tmp/soft)" 0 0.5
within "a task without a cap" "$(of /tmp/free)" 66 71
# With nobody beside it, the background has what is left.
finish $free
sleep 1
SEEN=$(vmtool watch 3 /tmp/soft /tmp/hard)
echo "$SEEN"
measure soft_0_alone "$(of /tmp/soft)" %
within "a task of the background in what nobody wants" "$(of /tmp/soft)" 66 71
ext_is_on
same "tasks that are told to have a cap" "$(tail -n 600 /tmp/ext | grep -c "\"pid\": $hard,")" "$(tail -n 600 /tmp/ext | grep -c "\"pid\": $soft,")"
tail -n 600 /tmp/ext | grep -q "\"pid\": $forks," || fail "the statistics have no cap of task $forks"
ext_off
SEEN=$(vmtool watch 2 /tmp/hard)
within "what was a task of 200‰, once the scheduler is gone" "$(of /tmp/hard)" 22 60
