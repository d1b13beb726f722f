# what: a process that was set dies and its number is another's at once: that one is left where it is
# modes: precise
# kernels: 6.18
# seconds: 90
run_gated keep --side --quiet --name keep -- sleep 1000
again=0
for _round in 1 2 3 4 5 6; do
	sleep 1000 &
	first=$!
	home=$(cgroup_of $first)
	tidegate set pid:$first class=side >/dev/null
	kill -9 $first
	wait $first || true
	echo $((first - 1)) >/proc/sys/kernel/ns_last_pid
	sleep 1000 &
	second=$!
	[ $second != $first ] || again=$((again + 1))
	sleep 3
	same "the later process's group" "$(cgroup_of $second)" "$home"
	tidegate unset pid:$first >/dev/null 2>&1 || true
	same "the later process's group after unset" "$(cgroup_of $second)" "$home"
	finish $second
done
[ $again -ge 3 ] || skip "numbers could not be used again"
measure reused $again faults
gone_soon $keep
