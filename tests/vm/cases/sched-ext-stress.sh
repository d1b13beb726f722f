# what: tasks under all terms survive moves, stops, tracers, kills, changes of affinity, policy and group, CPU hotplug and reloads of the scheduler: none is lost or waits for ever, charges match CPU time, all counted members exist
# modes: smp
# tier: long
# seconds: 400
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
