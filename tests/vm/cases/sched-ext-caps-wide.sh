# what: the sched_ext engine's caps on two, four and eight CPUs: any window of hogs that join one after the other, and the mean, for each scope
# modes: wide
# tier: long
# seconds: 600
group cap200 cap500 cap900 cap1500 soft500 process100 task100 other
# The kernel tells the caches of CPUs on line alone, and the scheduler reads them once.
cpus 2 4 6 8 10 12 14
sched_ext_on --gate 'cgroup:/cap200 cap_hard=200‰' --gate 'cgroup:/cap500 cap_hard=500‰' --gate 'cgroup:/cap900 cap_hard=900‰' \
	--gate 'cgroup:/cap1500 cap_hard=1500‰' --gate 'cgroup:/soft500 cap_soft=500‰' \
	--gate 'cgroup:/process100 cap_hard=100‰ cap_scope=process' --gate 'cgroup:/task100 cap_hard=100‰ cap_scope=task'
# The scheduler is in force before its gates are.
sleep 1

# steady NAME PERMILLE COMMAND...: its mean once it has paid for its start, to 1 ‰ of a CPU and half
# a depth (what the level may differ by).
# What starts and ends of runs are charged beyond perf's clock comes off that: with eight CPUs turns
# of the bed are between the two clocks, and it may be 0.5 %.
steady() {
	_name=$1 _want=$2
	shift 2
	start $_name "$@"
	sleep 0.5
	see vmtool bound 1 $_name $_want
	measure ${_name}_on_$many "$(of mean)" ‰
	within "the mean of $_name on $many CPUs" "$(of mean)" \
		"$(awk -v r="$_want" -v low="${LOW:-0.99}" 'BEGIN { print r * low - 1 }')" "$(awk -v r="$_want" 'BEGIN { print r * 1.005 + 1 }')"
	echo 1 >$ROOT/$_name/cgroup.kill
	wait $STARTED || true
}

for online in "4" "4 8 12" "2 4 6 8 10 12 14"; do
	cpus $online
	for rate in 200 500 900 1500; do
		see vmtool bound 0.3 cap$rate $rate "$many"
		measure over_${rate}_on_$many "$(of over_us)" us
		# The depth is 10 ms of the rate; the reader, turns of the emulator and 1 ‰ of the time are 250
		# us, and 40 us for each CPU whose clock is read.
		within "use beyond $rate ‰ over any window on $many CPUs" "$(of over_us)" 0 "$((rate * 10 + 250 + 40 * many))"
		steady cap$rate $rate vmtool threads "$many"
	done
	steady process100 300 sh -c 'for i in 1 2 3; do vmtool threads 2 & done; wait'
	steady task100 300 vmtool threads 3
	# Beside as many hogs it has its rate.
	start other vmtool threads "$many"
	LOW=0.98 steady soft500 500 vmtool threads "$many"
	echo 1 >$ROOT/other/cgroup.kill
done
sched_ext_off
