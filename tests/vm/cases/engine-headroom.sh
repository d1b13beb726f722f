# what: constant main, headroom 30 %: idle is 30 % within 1 point over 10 s; side gets the rest, at least 1 %
# modes: precise
# seconds: 120
run_gated side --side --headroom 30% -- vmtool burn
for load in 0 20 40 60 80; do
	tidegate run --main -- vmtool duty $load 10000 &
	main=$!
	sleep 2
	seen 10 $MAIN $SIDE test
	measure "idle_main_$load" "$(of idle)" %
	measure "side_main_$load" "$(of $SIDE)" %
	if [ $load -le 60 ]; then
		within "idle with main at $load %" "$(of idle)" 29 31
	else
		# Main takes more than it left: side has its tolerance, and idle is what remains.
		within "side with main at $load %" "$(of $SIDE)" 0.5 2
	fi
	finish $main
done
tidegate status
writes=$(tidegate status --json | json quota_writes_per_second)
measure writes_a_second "$writes" /s
within "quota writes a second" "$writes" 0 5
measure agent "$(tidegate status --json | json agent_cpus)" CPUs
