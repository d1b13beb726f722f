# what: what the agent and its guardian use, with few groups and with 500 more
# modes: precise
# kernels: 6.18
# tier: long
# seconds: 60
run_gated side --side --headroom 30% -- vmtool burn
run_gated main --main -- vmtool duty 20 10000
sleep 5
# The agent was started from this group and lives in it; the shell sleeps.
seen 10 test
measure agent_few_groups "$(of test)" %
few=$(of test)
group many
for number in $(seq 500); do mkdir $ROOT/many/g$number; done
sleep 2
seen 10 test
measure agent_500_groups "$(of test)" %
# A nanosecond an instruction is about a third of a present machine's speed.
within "the agent's use with few groups" "$few" 0 3
within "the agent's use with 500 groups" "$(of test)" 0 3
