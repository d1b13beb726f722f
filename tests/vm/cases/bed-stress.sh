# what: the torment of sched-ext-stress under the kernel's own scheduler: a stall that comes here too is the bed's, not ours
# modes: smp
# tier: long
# seconds: 200
stress_groups
torment 6 1
torment 6 2
measure host_stood "$(stood 100000)" s
measure rcu_stalls "$(dmesg | grep -c 'detected stall\|self-detected stall')" times
