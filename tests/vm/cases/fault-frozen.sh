# what: the agent is frozen by cgroup.freeze and by SIGSTOP: the fallback within the lease, and the agent goes on afterwards
# modes: precise
# kernels: 6.18
# seconds: 90
floor() { [ "$(cat $ROOT/$SIDE/cpu.max)" = "$floor" ] && [ "$(cat $ROOT/$SIDE/cpu.idle)" = 1 ]; }
moved() { [ "$(cat $ROOT/$SIDE/cpu.max)" != "$floor" ]; }
now_ms() { awk '{ print int($1 * 1000) }' /proc/uptime; }

run_gated side --side --headroom 30% -- vmtool burn
first=$(agent)
# The tolerance, 1 % of the one CPU, is 1 ms in 100.
floor="1000 100000"
mkdir $ROOT/cold
worst=0
for _round in 1 2 3 4; do
	until_true 10 moved || fail "side stays at the tolerance"
	began=$(now_ms)
	if [ $((_round % 2)) = 0 ]; then kill -STOP "$first"; else
		echo "$first" >$ROOT/cold/cgroup.procs
		echo 1 >$ROOT/cold/cgroup.freeze
	fi
	until_true 4 floor || fail "round $_round: no fallback: '$(cat $ROOT/$SIDE/cpu.max)'"
	took=$(($(now_ms) - began))
	[ $took -le $worst ] || worst=$took
	echo 0 >$ROOT/cold/cgroup.freeze
	echo "$first" >$ROOT/cgroup.procs
	kill -CONT "$first"
done
within "time until the fallback in ms" $worst 1500 2600
until_true 10 moved || fail "the agent did not go on"
same "the agent" "$(agent)" "$first"
measure fallback $worst ms
gone_soon $side
rmdir $ROOT/cold
