# what: each term on v2 as the kernel has it then: weight, idle class, quota, burst, hard and soft cap, hint, objective
# modes: precise
# seconds: 60

# started NAME FLAGS...: a sleeper in a gate of that name; GROUP is its group.
started() {
	_name=$1
	shift
	tidegate run --quiet --name "$_name" "$@" -- sleep 100 &
	eval "$_name=$!"
	shown() { tidegate status "gate:$_name" --json >/tmp/shown 2>/dev/null; }
	until_true 20 shown || fail "no gate $_name"
	GROUP=$ROOT$(json cgroup </tmp/shown)
}

started heavy --side --weight 300
same "weight" "$(cat "$GROUP/cpu.weight")" 300
same "cpu.idle of all side work" "$(cat $ROOT/$SIDE/cpu.idle)" 1
started own --quota 20ms --period 50ms --burst 10ms
same "quota and period" "$(cat "$GROUP/cpu.max")" "20000 50000"
same "burst" "$(cat "$GROUP/cpu.max.burst")" 10000
started capped --cap-hard 200‰
same "hard cap" "$(awk '{ print $1 * 1000 / $2 }' "$GROUP/cpu.max")" 200
started soft --cap-soft 0
background() { [ "$(cat "$GROUP/cpu.idle")" = 1 ]; }
until_true 5 background || fail "soft cap of 0: cpu.idle is $(cat "$GROUP/cpu.idle")"
started hinted --latency -20
same "slice" "$(vmtool slice $hinted)" 100000
started aim --main --objective "p99<5ms"
aimed() { tidegate status --json | grep -q "p99<5ms"; }
until_true 5 aimed || fail "status does not know the objective"
gone_soon $heavy $own $capped $soft $hinted $aim
