# what: the sched_ext engine's quotas hold, by the kernel's count, for who wakes out of idle thousands of times a second, and beside a cap
# modes: precise
# tier: long
# seconds: 60
group wakes capped
echo "10000 100000" >$ROOT/wakes/cpu.max
echo "10000 100000" >$ROOT/capped/cpu.max
sched_ext_on --gate "cgroup:/capped cap_hard=200‰"

inside wakes vmtool wake 6 300 40 >/tmp/wakes &
sleep 1
SEEN=$(vmtool watch 4 wakes)
wait $!
echo "$SEEN" "$(cat /tmp/wakes)"
sched_ext_is_on
measure wakes_10_of_100_ms "$(of wakes)" %
within "10 ms in 100 ms of who wakes" "$(of wakes)" 9.95 10.05

# By perf's clock: 7.3's own stands still for whole runs where a cap ends them, and is not to be
# believed then.
inside capped vmtool burn &
sleep 1
see vmtool clock 4 capped
sched_ext_is_on
measure capped_10_of_100_ms "$(of capped)" %
within "10 ms in 100 ms below a cap of 200 permille" "$(of capped)" 9.9 10.1
