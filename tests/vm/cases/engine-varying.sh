# what: varying main (20 and 60 % in turn), headroom 30 %: idle over any second
# modes: precise
# kernels: 6.18
# tier: long
# seconds: 60
run_gated side --side --headroom 30% -- vmtool burn
for half in 1 0.1; do
	tidegate run --main -- vmtool wave 20 60 5000 $half 16 &
	sleep 3
	SEEN=$(vmtool floor 10)
	echo "half $half s: $SEEN"
	measure "idle_turns_of_${half}_s" "$(of idle)" %
	measure "idle_least_turns_of_${half}_s" "$(of idle_least)" %
	# The aim is 29; a step of 40 points costs what the reaction takes (law/README.md). Twelve runs
	# gave 27.6 to 29.7:
	# when the steps fall within the loop's period differs from boot to boot. Without the fast cut it
	# is under 20.
	within "the least idle over a second, turns of $half s" "$(of idle_least)" 26 100
	wait $!
done
