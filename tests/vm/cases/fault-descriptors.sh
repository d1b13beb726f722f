# what: an agent that runs and can open no file lets its lease run out: the guardian's fallback stands; with descriptors it goes on
# modes: precise
# kernels: 6.18
# seconds: 90
floor="1000 100000"
floor() { [ "$(cat $ROOT/$SIDE/cpu.max)" = "$floor" ] && [ "$(cat $ROOT/$SIDE/cpu.idle)" = 1 ]; }
moved() { [ "$(cat $ROOT/$SIDE/cpu.max)" != "$floor" ]; }
now_ms() { awk '{ print int($1 * 1000) }' /proc/uptime; }

group main
run_gated side --side --headroom 30% -- vmtool burn
first=$(agent)
guardian=$(guardian)
until_true 10 moved || fail "side stays at the tolerance"
sleep 2
# On one CPU this very command may be what the agent cuts for, to the same value, just before it can
# write no more.
vmtool nofile "$first" 3
for _ in 1 2 3 4 5; do
	! moved || break
	vmtool nofile "$first" 1024
	until_true 10 moved || fail "the agent did not go on"
	sleep 1
	vmtool nofile "$first" 3
done
moved || fail "side stays at the tolerance"
# Main takes half: a cut to 20 % is due, which the agent cannot write.
inside main vmtool duty 50 10000 &
main=$!
began=$(now_ms)
until_true 8 floor || fail "no fallback: '$(cat $ROOT/$SIDE/cpu.max)'"
took=$(($(now_ms) - began))
within "time until the fallback in ms" $took 1500 3000
measure fallback $took ms
alive "$first" && alive "$guardian" || fail "one of them has ended"
sleep 3
floor || fail "the fallback did not stay: '$(cat $ROOT/$SIDE/cpu.max)'"
vmtool nofile "$first" 1024
until_true 10 moved || fail "the agent did not go on"
same "the agent" "$(agent)" "$first"
gone_soon $main $side
