# what: 60 hogs that share 1 ms in 1 s keep to it but for what the watchdog needs, and the scheduler is not ejected
# modes: precise
# kernels: 6.18 7.3
# needs: tidegate
# seconds: 120
group crowd
echo "1000 1000000" >$ROOT/crowd/cpu.max
ext_on --json
inside crowd vmtool threads 60 &
# Longer than the watchdog's 30 s; each task runs for 1 ms in a minute, and has a visit of 50 us in each 10 s.
sleep 5
SEEN=$(vmtool watch 60 crowd)
echo "$SEEN"
ext_is_on
line=$(tail -n 400 /tmp/ext)
visits=$(echo "$line" | json visits)
visit_us=$(echo "$line" | json visit_us)
measure use "$(of crowd)" %
measure visits "$visits" runs
measure visit_us "$visit_us" us
within "60 hogs in 1 ms of 1 s" "$(of crowd)" 0.09 0.14
within "visits" "$visits" 60 450
within "the length of a visit" "$((visit_us / visits))" 45 90
