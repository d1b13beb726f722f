# what: 60 hogs that share 1 ms in 1 s keep to it but for what the watchdog needs, and the scheduler is not ejected
# modes: precise
# tier: long
# seconds: 120
group crowd
echo "1000 1000000" >$ROOT/crowd/cpu.max
sched_ext_on --json
inside crowd vmtool threads 60 &
# Longer than the watchdog's 30 s, in which each task has half a millisecond of quota and needs to
# be run at least once.
sleep 5
see vmtool watch 60 crowd
sched_ext_is_on
measure use "$(of crowd)" %
measure min_runs "$(tail -n 1 /tmp/sched_ext | json min_runs)" runs
within "60 hogs in 1 ms of 1 s" "$(of crowd)" 0.09 0.14
