# what: a quota is a copy from the moment its gate asks for a cap, and its own again from when it does not, though its value stays
# modes: precise
# tier: long
# seconds: 60
agent_ext_begin
group batch
start batch vmtool burn
hog=$STARTED

# keeps WHAT: a tenth of the CPU, with the same words in the kernel file all the time: the kernel
# tells the scheduler of no change.
keeps() {
	same "cpu.max with $1" "$(cat $ROOT/batch/cpu.max)" "$copy"
	sleep 1.5
	SEEN=$(vmtool clock 3 batch)
	echo "$1: $SEEN"
	measure "$2" "$(of batch)" %
	within "$1" "$(of batch)" 9.9 10.1
}
tidegate set cgroup:/batch cap_hard=100‰
copy=$(cat $ROOT/batch/cpu.max)
keeps "the copy of a cap" cap
tidegate unset cgroup:/batch
echo "$copy" >$ROOT/batch/cpu.max
keeps "a quota of somebody's" theirs
tidegate set cgroup:/batch cap_hard=100‰
keeps "a cap whose copy stood there" cap_again
tidegate unset cgroup:/batch
keeps "somebody's quota again" theirs_again

tidegate agent stop
wait $AGENT || { cat /tmp/agent; fail "the agent ended with an error"; }
finish $hog
