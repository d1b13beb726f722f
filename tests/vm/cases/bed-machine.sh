# what: the guest is what the other tests take for granted
# modes: precise smp
# seconds: 10
case $MODE in precise) cpus=1 ;; *) cpus=2 ;; esac
same "number of CPUs" "$(nproc)" $cpus
for controller in cpu cpuset memory pids; do
	grep -qw $controller $ROOT/cgroup.controllers || fail "no $controller controller"
done
[ -s /sys/kernel/btf/vmlinux ] || fail "no BTF"
[ -e /sys/kernel/tracing/events/sched/sched_switch/id ] || fail "no sched_switch tracepoint"
group a
same "cpu.idle of a new group" "$(cat $ROOT/a/cpu.idle)" 0
same "cpu.max of a new group" "$(cat $ROOT/a/cpu.max)" "max 100000"
same "clock" "$(cat /sys/devices/system/clocksource/clocksource0/current_clocksource)" tsc
