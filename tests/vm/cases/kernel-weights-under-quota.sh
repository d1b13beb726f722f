# what: weights below a throttled group: near at periods of 50 ms and more, lost at 10 ms (with no Tidegate at all)
# modes: precise
# seconds: 60
# A throttled group forgets what its children were owed, and a slice is a large part of a short period.
under() {
	group "$1/light"
	group "$1/heavy"
	echo "+cpu" >$ROOT/$1/cgroup.subtree_control
	echo 1 >$ROOT/$1/cpu.idle
	echo "$2" >$ROOT/$1/cpu.max
	echo 100 >$ROOT/$1/light/cpu.weight
	echo 300 >$ROOT/$1/heavy/cpu.weight
	inside $1/light vmtool burn &
	inside $1/heavy vmtool burn &
	sleep 1
	SEEN=$(vmtool watch 10 $1/light $1/heavy)
	echo "$2: $SEEN"
	echo 1 >$ROOT/$1/cgroup.kill
	sleep 0.5
	measure "light_at_$1" "$(of $1/light)" %
}
under period_100_ms "70000 100000"
within "weight 100 beside 300 (17.5 % of 70 are its due), period 100 ms" "$(of period_100_ms/light)" 16.5 20
under period_20_ms "14000 20000"
within "weight 100 beside 300, period 20 ms" "$(of period_20_ms/light)" 16.5 24
under period_10_ms "7000 10000"
within "weight 100 beside 300, period 10 ms" "$(of period_10_ms/light)" 30 45
