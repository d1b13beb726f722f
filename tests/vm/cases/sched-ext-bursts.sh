# what: main's bursts beside side work under the engine sched_ext, endless and fresh and under a quota: two in a hundred are late
# modes: wide
# tier: long
# seconds: 600
group main
cpus 4

bursts() {
	bursts_seen "$(echo "$1" | tr -d , | tr ' ' _)" "$1"
	few_are_late "$1"
}

agent_ext_begin
for kind in hogs fresh; do
	side_work $kind tidegate run -q --side --
	for ms in 1 6 12; do
		bursts_of main $ms
		bursts "$ms ms, $kind"
	done
	bursts_at_random 6 main main
	bursts "6 ms, two mains, $kind"
	side_work_over
done
side_work 100ms tidegate run -q --side --name limited --join --quota 100ms --period 100ms --
bursts_of main 6
bursts "6 ms, quota each 100 ms"
side_work_over
same "the scheduler" "$(cat /sys/kernel/sched_ext/root/ops)" tidegate
none_has_many_late
