# what: the wall clock leaps by a day, back and forth: side stays held, the agent stays, no lease expires
# modes: precise
# kernels: 6.18
# seconds: 60
run_gated side --side --headroom 30% -- vmtool burn
sleep 2
first=$(agent) second=$(guardian)
leaps=0
for days in 1 -1 400 -400 1 -1; do
	date -s "@$(($(date +%s) + days * 86400))" >/dev/null
	leaps=$((leaps + 1))
	for _look in 1 2 3 4 5; do
		held || fail "after a leap of $days days: side is not held"
		sleep 0.1
	done
done
seen 4 $SIDE
within "side beside a leaping clock" "$(of $SIDE)" 60 71
same "the agent" "$(agent)" "$first"
same "the guardian" "$(guardian)" "$second"
same "alerts" "$(tidegate status --json | tr -d ' \n' | grep -c '"alerts":\[\]')" 1
measure leaps $leaps faults
gone_soon $side
