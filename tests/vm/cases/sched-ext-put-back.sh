# what: a main task that a real-time task displaces goes on at once where background or side work runs; a soft cap beside as many hogs as CPUs is its rate
# modes: wide
# tier: long
# seconds: 120
cpus 4
group main idles side soft500 other
sched_ext_on --json --gate 'cgroup:/idles cap_soft=0' --gate 'cgroup:/side class=side headroom=0%' --gate 'cgroup:/soft500 cap_soft=500‰'
# The scheduler is in force before its gates are.
sleep 1

# beside GROUP: how much of a CPU one main task has beside two hogs there, while each CPU in turn
# has a real-time task for 2 of 10 ms, some 5 ms apart.
beside() {
	start $1 vmtool threads 2
	start main vmtool burn
	taskset 1 vmtool realtime 50 vmtool duty 20 10000 &
	first=$!
	sleep 0.503
	taskset 10 vmtool realtime 50 vmtool duty 20 10000 &
	second=$!
	sleep 0.5
	SEEN=$(vmtool bound 1 main 1000)
	echo "$1: $SEEN"
	measure main_beside_$1 "$(of mean)" ‰
	finish $first $second
	echo 1 >$ROOT/main/cgroup.kill
	echo 1 >$ROOT/$1/cgroup.kill
	within "a main task beside $1, permille of a CPU" "$(of mean)" 960 1000
}
beside idles
beside side

start other vmtool threads 2
start soft500 vmtool threads 2
sleep 0.5
# A real-time task whose period goes over all moments between two ticks.
vmtool realtime 50 vmtool duty 10 990 &
drifts=$!
see vmtool bound 4 soft500 500
measure soft500 "$(of mean)" ‰
# The depth over 4 s, and 5 ‰ of its rate.
within "a soft cap of 500 ‰ beside two hogs" "$(of mean)" 490 504
finish $drifts
sched_ext_off
