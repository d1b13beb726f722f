# what: the bed reads the least idle over any second: 40 % where a load of 20 and 60 % alternates each second
# modes: precise
# kernels: 6.18
# seconds: 20
group main
inside main vmtool wave 20 60 5000 1 16 &
sleep 1
see vmtool floor 8
measure idle "$(of idle)" %
measure idle_least "$(of idle_least)" %
within "mean idle" "$(of idle)" 58 60.5
within "least idle over a second" "$(of idle_least)" 37.5 40.5
