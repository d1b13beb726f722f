# what: an ejection by sysrq-S, by a real-time task that withholds the CPU (the dump tells our state) and by the agent's death: what is mirrored holds, status says why, sched_ext is loaded again
# modes: precise
# tier: long 7.3
# seconds: 420
# Field 41 of its stat.
rcu_policy() { sed 's/.*) //' "/proc/$(pidof rcu_preempt rcu_sched)/stat" | cut -d' ' -f39; }
agent_ext_begin
eject_work
ejected sysrq by_sysrq
told sysrq
tidegate status --json | json last_reason
sched_ext_again
told_on() { tidegate status --json | json on | grep -q true; }
sleep 2
told_on || fail "status does not say that sched_ext is on again"
within "side work under it" "$(seen 3 /tmp/turns >/dev/null; of /tmp/turns)" 0 1.5

ejected_by_real_time real-time
told 'real-time tasks withhold'
for line in 'real-time tasks withhold' 'headroom: allowance [0-9]* ucpu' 'side CPUs: [0-9]* held' 'cache 0 main: V [0-9]*, [1-9][0-9]* tasks' \
	'tidegate: main, hint 0, cgroup [0-9]*, deadline V' 'tidegate: side, hint' 'tidegate: waits for '; do
	dump_tells "$line"
done
sched_ext_again

same "the policy of RCU's thread while the scheduler is loaded" "$(rcu_policy)" 1
ejected death by_kill
wait $AGENT || true
measure ejections $EJECTED faults
tidegate agent repair
same "the policy of RCU's thread" "$(rcu_policy)" 0
quota_stands || fail "repair lifted side work's limits while it runs"
finish $HOG $TURNS $CAPPED
tidegate agent repair
until_true 10 gone || fail "left behind: $(ls -d $ROOT/tidegate-* 2>/dev/null) $(ours)"
