# what: in wide mode CPUs under one virtual time have even turns: idle CPUs stay idle, burners have whole ones
# modes: wide
# kernels: 6.18
# tier: long
# seconds: 60
cpus 2 8
same "CPUs on line" "$(cat /sys/devices/system/cpu/online)" 0,2,8
same "the threads of the first core" "$(cat /sys/devices/system/cpu/cpu0/topology/thread_siblings_list)" 0,2
same "the cache of the other socket" "$(cat /sys/devices/system/cpu/cpu8/cache/index3/shared_cpu_list)" 8
group a b
into a vmtool burn &
into b vmtool burn &
see vmtool watch 1 a b
within "a's CPU of three" "$(of a)" 32.5 33.6
within "b's CPU of three" "$(of b)" 32.5 33.6
within "the third, idle but for the test itself" "$(of idle)" 32.5 35
