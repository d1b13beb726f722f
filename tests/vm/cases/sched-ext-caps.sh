# what: the sched_ext engine's hard caps keep a hog, a group that forks and a task that sleeps within 1 ‰ of a CPU over each second
# modes: precise
# tier: long
# seconds: 300
CAPS="10 100 200 500 900"
set --
for cap in $CAPS; do
	group cap$cap
	set -- "$@" --gate "cgroup:/cap$cap cap_hard=${cap}‰"
done
sched_ext_on "$@"

# Over five seconds in one the use is the rate, to 1 ‰ and a fifth of the depth; in a second alone,
# what a bucket holds (10 ms of the rate) may come on top after it was kept from running by others,
# which are this test's own shell.
# seconds_of NAME CAP COMMAND...: it runs alone in the capped group; its use by perf's clock.
seconds_of() {
	_name=$1_$2
	_cap=$2
	shift 2
	inside cap$_cap "$@" &
	# What it took to begin is paid back first.
	sleep 3
	SEEN=$(vmtool clock 5 cap$_cap)
	_sum=$(of cap$_cap)
	_most=0
	for _second in 1 2 3; do
		SEEN=$(vmtool clock 1 cap$_cap)
		_now=$(of cap$_cap)
		_most=$(awk -v a="$_most" -v b="$_now" 'BEGIN { print (a > b ? a : b) }')
	done
	measure $_name "$_sum" %
	measure ${_name}_most_in_a_second "$_most" %
	echo 1 >$ROOT/cap$_cap/cgroup.kill
	wait $! || true
	within "$_name" "$_sum" "${LEAST:-0}" "$(awk -v c="$_cap" 'BEGIN { print c / 10 + c / 5000 + 0.1 }')"
	within "$_name at its most" "$_most" 0 "$(awk -v c="$_cap" 'BEGIN { print c / 10 + c / 1000 + 0.1 }')"
}

for cap in $CAPS; do
	LEAST=$(awk -v c="$cap" 'BEGIN { print c / 10 - 0.1 }')
	seconds_of hog $cap vmtool burn
done
LEAST=7
seconds_of forks 100 sh -c 'for i in 1 2 3 4; do vmtool burn & done; wait'
# As a build does it: two that keep four children each, which work 5 ms and exit. What lies between
# two tasks of a group is a part of its use: 1 to 2 us each time, of which it had 2 permille of a
# CPU for nothing.
LEAST=35
seconds_of build 500 vmtool forks 2 4 5000
within "a build's use" "$_sum" 49.5 50.15
LEAST=0
for cap in 10 200 900; do seconds_of sleeper $cap vmtool duty 95 20000; done
sched_ext_is_on
cat /tmp/sched_ext
