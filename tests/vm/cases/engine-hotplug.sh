# what: a CPU goes and comes back while side runs: side stays held, the agent goes on
# modes: smp
# tier: long 7.3
# seconds: 40
run_gated side --side --headroom 30% -- vmtool threads 2
sleep 2
first=$(agent)
echo 0 >/sys/devices/system/cpu/cpu1/online
sleep 3
held || fail "side is not held on one CPU"
same "CPUs that the agent sees" "$(tidegate status --json | json cpus)" 1
echo 1 >/sys/devices/system/cpu/cpu1/online
sleep 3
held || fail "side is not held on two CPUs"
same "CPUs that the agent sees" "$(tidegate status --json | json cpus)" 2
same "the agent" "$(agent)" "$first"
gone_soon $side
