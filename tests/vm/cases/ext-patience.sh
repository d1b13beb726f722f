# what: whatever weights, nice levels, policies and groups say, nobody waits for more than about 10 s, and the scheduler is not ejected
# modes: precise
# kernels: 6.18 7.3
# needs: tidegate
# seconds: 120
ext_on --json
group heavy
group light
echo +cpu >$ROOT/light/cgroup.subtree_control
group light/most
group light/least
echo 10000 >$ROOT/heavy/cpu.weight
echo 1 >$ROOT/light/cpu.weight
echo 10000 >$ROOT/light/most/cpu.weight
echo 1 >$ROOT/light/least/cpu.weight
inside heavy vmtool threads 40 &
inside light/most vmtool threads 4 &
# By weight each of these has a ten-millionth of the CPU: a slice every two hours.
into light/least nice -n 19 vmtool burn &
nice19=$!
into light/least chrt -i 0 vmtool burn &
idle=$!
sleep 2
start=$(uptime)
SEEN=$(vmtool watch 45 heavy light/most light/least)
echo "$SEEN"
ext_is_on
