# what: set cgroup: holds a group that cannot move by its own quota; unset restores what stood there
# modes: precise
# tier: long 7.3
# seconds: 40
group service
echo 200 >$ROOT/service/cpu.weight
echo "max 50000" >$ROOT/service/cpu.max
inside service vmtool burn &
process=$!
tidegate set cgroup:/service class=side headroom=30%
sleep 2
[ "$(cut -d' ' -f1 $ROOT/service/cpu.max)" != max ] || fail "the group has no quota"
seen 4 service
measure side "$(of service)" %
within "idle" "$(of idle)" 28.5 31.5
# Side work elsewhere shares the one allowance with it.
run_gated other --side -- vmtool burn
seen 4 service $SIDE
measure idle_with_both "$(of idle)" %
within "idle with both" "$(of idle)" 28.5 31.5
within "the other's part" "$(of $SIDE)" 5 65
tidegate unset cgroup:/service
same "cpu.max" "$(cat $ROOT/service/cpu.max)" "max 50000"
same "cpu.idle" "$(cat $ROOT/service/cpu.idle)" 0
same "cpu.weight" "$(cat $ROOT/service/cpu.weight)" 200
gone_soon $process $other
