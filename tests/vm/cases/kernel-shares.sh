# what: weights and cpu.idle divide one CPU as documented, within 0.5 %
# modes: precise
# kernels: 6.18 7.3
# seconds: 30
group a
group b
echo 200 >$ROOT/b/cpu.weight
inside a vmtool burn &
inside b vmtool burn &
sleep 1
SEEN=$(vmtool watch 5 a b)
echo "$SEEN"
measure weight_100_of_300 "$(of a)" %
within "share of weight 100 beside 200" "$(of a)" 32.83 33.83
within "share of weight 200 beside 100" "$(of b)" 66.17 67.17

# cpu.idle is weight 3 of 1024's scale: 3/1027 of a CPU beside weight 100.
echo 100 >$ROOT/b/cpu.weight
echo 1 >$ROOT/a/cpu.idle
sleep 1
SEEN=$(vmtool watch 5 a b)
echo "$SEEN"
measure idle_class_beside_100 "$(of a)" %
within "share of cpu.idle beside weight 100" "$(of a)" 0.05 0.8
if echo 50 2>/dev/null >$ROOT/a/cpu.weight; then fail "a weight was taken while cpu.idle is 1"; fi
echo 0 >$ROOT/a/cpu.idle
same "weight after cpu.idle went back to 0" "$(cat $ROOT/a/cpu.weight)" 100
