# what: one thread has a hard cap of its own; the others of its process run on, and it goes back to them
# modes: precise
# tier: long
# seconds: 60
group main
start main vmtool threads 2
sleep 0.5
TID=$(ls /proc/$STARTED/task | grep -v "^$STARTED\$")
ran_ns() { cut -d' ' -f1 /proc/$STARTED/task/$1/schedstat; }

said=$(tidegate set pid:$TID cap_hard=0.2cpu 2>&1) && fail "a thread was taken for a process"
echo "$said" | grep -q "tid:$TID" || fail "not told what it is: $said"
tidegate set tid:$TID cap_hard=0.2cpu
grep -q '^0::/main/tidegate' /proc/$STARTED/task/$TID/cgroup || fail "it is in $(cat /proc/$STARTED/task/$TID/cgroup)"
same "the process's group" "$(cgroup_of $STARTED)" /main
sleep 1
_thread=$(ran_ns $TID) _other=$(ran_ns $STARTED)
sleep 4
_thread=$((($(ran_ns $TID) - _thread) / 40000000)) _other=$((($(ran_ns $STARTED) - _other) / 40000000))
measure capped_thread "$_thread" %
measure other_thread "$_other" %
within "a thread with a cap of 0.2 CPUs" "$_thread" 18 21
within "its process's other thread" "$_other" 70 82
tidegate unset tid:$TID
same "the thread's group" "$(sed -n 's/^0:://p' /proc/$STARTED/task/$TID/cgroup)" /main
same "the type of the process's group" "$(cat $ROOT/main/cgroup.type)" domain
gone_soon $STARTED
