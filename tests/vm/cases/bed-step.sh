# what: the bed reads a reaction of a known length: a quota cut 25 ms after main's step
# modes: precise
# kernels: 6.18
# seconds: 20
group main side
echo 1 >$ROOT/side/cpu.idle
echo "6000 10000" >$ROOT/side/cpu.max
inside side vmtool burn &
inside main vmtool step 10 40 5000 2 5 /tmp/step &
(
	until [ -s /tmp/step ]; do sleep 0.001; done
	sleep 0.025
	echo "3000 10000" >$ROOT/side/cpu.max
) &
vmtool series 4 2000 side >/tmp/series
took=$(reaction /tmp/series "$(cat /tmp/step)" 35 down)
measure cut_after_25_ms "$took" ms
# A window of 100 ms blurs it, by the phase of the 10 ms period at the step.
within "the reaction read, in ms" "$took" 2 40
late=$(excess /tmp/series "$(cat /tmp/step)" 30 60)
measure excess_cut_after_25_ms "$late" ms
within "the excess read, in ms" "$late" 24 40
