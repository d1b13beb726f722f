# what: tasks under all terms survive moves, stops, tracers, kills, changes of affinity, policy and group, CPU hotplug and reloads of the scheduler: none is lost or waits for ever, charges match CPU time, all counted members exist
# modes: smp
# kernels: 6.18 7.3
# tier: long
# needs: tidegate
# seconds: 400
# nothing_miscounted: what run queues and the tree of weights count are the tasks that exist. A task that is counted for good
# stays so; while others wake up the figure differs for a moment.
nothing_miscounted() {
	until_true 15 sh -c '[ "$(tail -n 1 /tmp/sched_ext | sed -n "s/.*\"miscounted\":\([0-9]*\).*/\1/p")" = 0 ]' ||
		fail "miscounted: $(json_last miscounted)"
}

stress_on
torment 6 1
same_is_charged
nothing_miscounted
# The scheduler goes and comes while all that goes on.
torment_along 6 2
stress_reload
torment_over
nothing_miscounted
sched_ext_off
measure min_runs "$(json_last min_runs)" runs
measure host_stood "$(stood 100000)" s
