# what: shares, throttle counts and wakeup latencies of the fair class, which lab/sim/tests/kernel.txt keeps for the simulator
# modes: precise
# kernels: 6.18
# tier: long
# seconds: 200
# Each scenario has a twin of the same name in lab/sim/tests/kernel.toml.

# scenario NAME
scenario() {
	S=$1
	group $S
	echo "+cpu" >$ROOT/$S/cgroup.subtree_control
}

# add GROUP [FILE=VALUE]...: a group of the scenario; GROUP may be PARENT/CHILD.
add() {
	group $S/$1
	case $1 in */*) echo "+cpu" >$ROOT/$S/${1%/*}/cgroup.subtree_control ;; esac
	_at=$ROOT/$S/$1
	shift
	for _set in "$@"; do echo "${_set#*=}" >"$_at/${_set%%=*}"; done
}

# hog GROUP [COUNT]
hog() {
	inside $S/$1 vmtool threads ${2:-1} &
}

end() {
	echo 1 >$ROOT/$S/cgroup.kill
	sleep 0.5
}

# count GROUP KEY: that counter of its cpu.stat.
count() { sed -n "s/^$2 //p" $ROOT/$S/$1/cpu.stat; }

# shares SECONDS GROUP...: the share of each, and in how many periods it was throttled and used
# burst.
shares() {
	_seconds=$1
	shift
	sleep 0.5
	_paths=""
	for _group in "$@"; do
		_paths="$_paths $S/$_group"
		for _key in nr_throttled nr_bursts; do count $_group $_key >/tmp/$_key.${_group##*/}; done
	done
	SEEN=$(vmtool watch $_seconds $_paths)
	for _group in "$@"; do
		_name=${_group##*/}
		measure $S.share.$_name "$(of $S/$_group)" %
		grep -q max $ROOT/$S/$_group/cpu.max && continue
		for _key in nr_throttled nr_bursts; do
			_was=$(cat /tmp/$_key.$_name)
			measure $S.${_key#nr_}.$_name $(($(count $_group $_key) - _was)) count
		done
	done
	end
}

# latencies GROUP INTERVAL_US WORK_US [WRAPPER...]: how late a sleeper in it wakes.
latencies() {
	_group=$1 _interval=$2 _work=$3
	shift 3
	sleep 0.5
	SEEN=$(inside $S/$_group "$@" vmtool wake 20 $_interval $_work)
	for _key in p50 p99; do measure $S.$_key.sleeper "$(of ${_key}_us)" us; done
	end
}

scenario weights-flat
add a cpu.weight=100
add b cpu.weight=200
add c cpu.weight=700
hog a
hog b
hog c
shares 4 a b c

scenario weights-nested
add a cpu.weight=100
add a/a1 cpu.weight=100
add a/a2 cpu.weight=300
add b cpu.weight=200
add b/b1
add b/b2
hog a/a1
hog a/a2
hog b/b1
hog b/b2 2
shares 4 a/a1 a/a2 b/b1 b/b2

scenario cpu-idle
add a cpu.idle=1
add b
hog a
hog b
shares 4 a b

scenario quota-2-100
add a "cpu.max=2000 100000"
hog a
shares 4 a

scenario quota-3-10
add a "cpu.max=3000 10000"
hog a
shares 4 a

scenario quota-nested
add p "cpu.max=40000 100000"
add p/c1 "cpu.max=15000 100000"
add p/c2
hog p/c1
hog p/c2
shares 4 p p/c1 p/c2

# The period sweeps the ticks.
scenario quota-weights-10
add p "cpu.max=7000 10100"
add p/light cpu.weight=100
add p/heavy cpu.weight=300
hog p/light
hog p/heavy
shares 10 p p/light p/heavy

scenario quota-weights-100
add p "cpu.max=70000 100000"
add p/light cpu.weight=100
add p/heavy cpu.weight=300
hog p/light
hog p/heavy
shares 10 p p/light p/heavy

scenario burst-none
add a "cpu.max=20000 100000"
inside $S/a vmtool duty 12.6575 237013 &
shares 10 a

scenario burst-20
add a "cpu.max=20000 100000" cpu.max.burst=20000
inside $S/a vmtool duty 12.6575 237013 &
shares 10 a

scenario wake-hog
add a
add b
hog b
latencies a 9973 1000

scenario wake-3-hogs
add a
hog a 3
latencies a 4973 200

scenario wake-3-hogs-short
add a
hog a 3
latencies a 18311 4000 vmtool sliced 100000

scenario wake-idle-group
add a
add b cpu.idle=1
hog b 3
latencies a 18311 4000
