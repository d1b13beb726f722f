# what: varying main (20 and 60 % in turn), headroom 30 %: idle over any second
# modes: precise
# needs: tidegate
# seconds: 60
tidegate run --side --headroom 30% -- vmtool burn &
side=$!
gate_soon $side $SIDE
for half in 1 0.1; do
	tidegate run --main -- vmtool wave 20 60 5000 $half 16 &
	sleep 3
	SEEN=$(vmtool floor 10)
	echo "half $half s: $SEEN"
	measure "idle_turns_of_${half}_s" "$(of idle)" %
	measure "idle_least_turns_of_${half}_s" "$(of idle_least)" %
	# The aim is 29; a step of 40 points costs what the reaction takes, and the law keeps 28 (law/README.md).
	within "the least idle over a second, turns of $half s" "$(of idle_least)" 28 100
	wait $!
done
