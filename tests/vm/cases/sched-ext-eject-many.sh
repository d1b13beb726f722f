# what: 25 ends of the scheduler by sysrq-S, a real-time task and the agent's death, loading and unloading under load: mirrors hold each time, no task is lost
# modes: precise
# tier: long
# seconds: 2400
stalls=1
case $(uname -r) in [7-9].*) stalls=0 ;; esac
for round in 1 2 3 4 5; do
	agent_ext_begin
	[ $round -gt 1 ] || eject_work
	for turn in 1 2 3 4; do
		if [ $stalls = 1 ] && [ $turn = 4 ]; then
			ejected_by_real_time "real-time $round"
			told 'real-time tasks withhold'
		else
			ejected "sysrq $round.$turn" by_sysrq
			told sysrq
		fi
		sched_ext_again
	done
	ejected "death $round" by_kill
	wait $AGENT || true
done
# It is taken out in order, too, and comes back.
agent_ext_begin
tidegate agent stop
wait $AGENT || true
measure ejections $EJECTED faults
finish $HOG $TURNS $CAPPED
tidegate agent repair
until_true 10 gone || fail "left behind: $(ls -d $ROOT/tidegate-* 2>/dev/null) $(ours)"
