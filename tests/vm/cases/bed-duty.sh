# what: the bed's own load and reader: a duty cycle of 40 % is read as 40 % and leaves 60 % idle
# modes: precise
# kernels: 6.18
# seconds: 20
group main
inside main vmtool duty 40 10000 &
sleep 1
see vmtool watch 5 main
measure duty_40 "$(of main)" %
measure idle "$(of idle)" %
within "a duty cycle of 40 %" "$(of main)" 39.8 40.5
within "what it leaves idle" "$(of idle)" 59.3 60.2
