# what: tasks of all kinds under terms of all kinds live through moves, stops, tracers, kills, affinities, policies, groups and CPUs that come and go, and the scheduler's own going: none is lost, none waits for ever, what is charged is what ran, who is counted exists
# modes: smp
# kernels: 6.18 7.3
# tier: long
# needs: tidegate
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
ext_off
measure min_runs "$(json_last min_runs)" runs
measure host_stood "$(stood 100000)" s
