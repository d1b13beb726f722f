# what: without root: bursts beside side work of the same user, in one session and below the user's own systemd
# modes: wide
# tier: long
# seconds: 1200
# As systemd has them: a session's group is root's, that of the user's own systemd is beside it.
group session user/app user/build
echo +cpu >$ROOT/user/cgroup.subtree_control
chown -R guest $ROOT/user
export XDG_RUNTIME_DIR=/run/of-guest
mkdir -p $XDG_RUNTIME_DIR
chown guest $XDG_RUNTIME_DIR
chmod 700 $XDG_RUNTIME_DIR
# as_user GROUP COMMAND
as_user() {
	echo 0 >$ROOT/$1/cgroup.procs
	shift
	exec su guest -c "exec $*"
}

# side_work GROUP ARM KIND: on each CPU two tasks that burn, or four that work 2 ms and rest 3.
side_work() {
	case $3 in
	fresh) _tasks=$(($(nproc) * 4)) _work="duty 40 5000" ;;
	*) _tasks=$(($(nproc) * 2)) _work=burn ;;
	esac
	pids=
	for n in $(seq "$_tasks"); do
		# shellcheck disable=SC2086 # a list of words
		case $2 in
		plain) into "$1" vmtool $_work & ;;
		idle) into "$1" vmtool idle vmtool $_work & ;;
		nice) into "$1" vmtool niced 19 vmtool $_work & ;;
		tidegate) as_user "$1" tidegate run -q --side -- vmtool $_work & ;;
		root) tidegate run -q --side -- vmtool $_work & ;;
		esac
		pids="$pids $!"
	done
	sleep 3
}

used_us() { cat $ROOT/*/cpu.stat | awk '/usage_usec/ { s += $2 } END { print s }'; }

# frames WHERE ARM KIND: 60 a second of 6 ms each.
frames() {
	_before=$(used_us)
	SEEN=$(inside "$1" vmtool wake 4 16667 6000)
	_side=$((($(used_us) - _before) / 40000 - 36))
	echo "$(nproc) CPUs, $1, $2, $3: p50 $(of done_p50_us) p99 $(of done_p99_us) us; late $(of done_late) of $(of wakes); side $_side % of a CPU"
	measure "$(nproc)_${1#*/}_$2_$3_p99" "$(of done_p99_us)" us
	measure "$(nproc)_${1#*/}_$2_$3_late" "$(of done_late)" frames
}

# beside MAIN_GROUP SIDE_GROUP
beside() {
	frames "$1" alone none
	for kind in fresh hogs; do
		for arm in plain nice idle tidegate root; do
			side_work "$2" $arm $kind
			frames "$1" $arm $kind
			# shellcheck disable=SC2086 # a list of words
			finish $pids
			sleep 2
		done
	done
}

cpus 2
beside session session
beside user/app user/build
