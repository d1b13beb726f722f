# what: the sched_ext engine's caps are inherited on fork by their scope: one bucket for each task, each process, or all of the group
# modes: precise
# tier: long
# seconds: 120
group bytask byprocess bygroup
sched_ext_on --gate "cgroup:/bytask cap_hard=100‰ cap_scope=task" \
	--gate "cgroup:/byprocess cap_hard=100‰ cap_scope=process" \
	--gate "cgroup:/bygroup cap_hard=100‰ cap_scope=group"

# three GROUP COMMAND...: what the group uses while it runs that, in percent.
three() {
	_group=$1
	shift
	inside $_group "$@" &
	sleep 1
	see vmtool clock 3 $_group
	echo 1 >$ROOT/$_group/cgroup.kill
	wait $! || true
}
FORKS='for i in 1 2 3; do vmtool burn & done; wait'
three bytask sh -c "$FORKS"
measure three_processes_task_scope "$(of bytask)" %
within "three processes of 10 % each" "$(of bytask)" 29.7 30.3
three bytask vmtool threads 3
measure three_threads_task_scope "$(of bytask)" %
within "three threads of 10 % each" "$(of bytask)" 29.7 30.3
three byprocess sh -c "$FORKS"
measure three_processes_process_scope "$(of byprocess)" %
within "three processes of 10 % each" "$(of byprocess)" 29.7 30.3
three byprocess vmtool threads 3
measure three_threads_process_scope "$(of byprocess)" %
within "three threads of 10 % together" "$(of byprocess)" 9.9 10.1
three bygroup sh -c "$FORKS"
measure three_processes_group_scope "$(of bygroup)" %
within "three processes of 10 % together" "$(of bygroup)" 9.9 10.1
# A chain of forks gains nothing.
three bytask sh -c 'while :; do vmtool burn 1 & sleep 0.05; done'
sched_ext_is_on
cat /tmp/sched_ext
