# what: whatever weights, nice levels, policies and groups say, no task waits for more than about 10 s, and the scheduler is not ejected
# modes: precise
# tier: long
# seconds: 120
sched_ext_on --json
group heavy light
echo +cpu >$ROOT/light/cgroup.subtree_control
group light/most light/least
echo 10000 >$ROOT/heavy/cpu.weight
echo 1 >$ROOT/light/cpu.weight
echo 10000 >$ROOT/light/most/cpu.weight
echo 1 >$ROOT/light/least/cpu.weight
inside heavy vmtool threads 40 &
inside light/most vmtool threads 4 &
# By weight each of these has a ten-millionth of the CPU: a slice every two hours.
into light/least vmtool burn &
nice19=$!
into light/least vmtool idle vmtool burn &
idle=$!
sleep 2
renice -n 19 -p $nice19 >/dev/null
before=$(vmtool cpu $nice19 $idle)
see vmtool watch 45 heavy light/most light/least
sched_ext_is_on
after=$(vmtool cpu $nice19 $idle)
printf '%s\n%s\n' "$before" "$after" >/tmp/ran
measure nice19_ran "$(awk '{ ns[NR] = $1 } END { print (ns[3] - ns[1]) / 1000 }' /tmp/ran)" us
measure idle_ran "$(awk '{ ns[NR] = $1 } END { print (ns[4] - ns[2]) / 1000 }' /tmp/ran)" us
measure min_runs "$(json_last min_runs)" runs
# Four least runs of 50 us each; 7.3's clock is short of what tasks of sched_ext ran.
awk '{ ns[NR] = $1 } END { exit !(ns[3] - ns[1] > 90000 && ns[4] - ns[2] > 90000) }' /tmp/ran || fail "one of them has waited for longer"
