# what: without root: four builds at once beside frames and a task that wakes each millisecond
# modes: wide
# tier: long
# needs: make cc1
# seconds: 1800
command -v cc1 >/dev/null && command -v make >/dev/null || skip "this machine has no make or cc1"
# As systemd has them: a session's group is root's, that of the user's own systemd is beside it.
echo "+cpu +memory" >$ROOT/cgroup.subtree_control
group session user/app user/build
echo "+cpu +memory" >$ROOT/user/cgroup.subtree_control
chown -R guest $ROOT/user
export XDG_RUNTIME_DIR=/run/of-guest
mkdir -p $XDG_RUNTIME_DIR
chown guest $XDG_RUNTIME_DIR
chmod 700 $XDG_RUNTIME_DIR

# build GROUP ARM NUMBER
build() {
	_make="make -s -C /tmp/build$3 -B -j16"
	echo 0 >"$ROOT/$1/cgroup.procs"
	case $2 in
	plain) exec su guest -c "exec $_make" ;;
	idle) exec su guest -c "exec vmtool idle $_make" ;;
	nice) exec su guest -c "exec vmtool niced 19 $_make" ;;
	tidegate) exec su guest -c "exec tidegate run -q --side -- $_make" ;;
	jobserver) exec su guest -c "exec tidegate run -q --side --jobserver -- ${_make% -j16}" ;;
	root) exec tidegate run -q --side --jobserver -- su guest -c "exec ${_make% -j16}" ;;
	esac
}

# peaks FILE: the most tasks that could run and the memory that was in use (MiB), at each 20th of a
# second.
peaks() {
	_most=0
	_used=0
	while :; do
		read -r _ _ _ _tasks _ </proc/loadavg
		[ "${_tasks%/*}" -le $_most ] || _most=${_tasks%/*}
		read -r _ _all _ </proc/meminfo
		_free=$(sed -n 's/^MemAvailable: *\([0-9]*\).*/\1/p' /proc/meminfo)
		[ $((_all - _free)) -le $_used ] || _used=$((_all - _free))
		echo "runnable=$_most memory=$((_used / 1024))" >"$1.new"
		mv "$1.new" "$1"
		sleep 0.05
	done
}

# beside WHERE SIDE ARM
beside() {
	_name="$(nproc)_${1#*/}_$3"
	inside "$1" vmtool wake 2.5 16667 6000 >/tmp/frames &
	_frames=$!
	inside "$1" vmtool wake 2.5 1000 20 >/tmp/wakes &
	_wakes=$!
	now
	_began=$NOW
	_took=-
	if [ "$3" != alone ]; then
		peaks /tmp/peaks &
		_peaks=$!
		_builds=
		for build in 1 2 3 4; do
			build "$2" "$3" $build &
			_builds="$_builds $!"
		done
		for _build in $_builds; do wait "$_build" || fail "a build of $_name ended with $?"; done
		same "files built" "$(ls /tmp/build*/*.s | wc -l)" $(($(nproc) * 16))
		rm /tmp/build*/*.s
		now
		_took=$(((NOW - _began) * 10))
		finish $_peaks
		measure "${_name}_took" $_took ms
		SEEN=$(cat /tmp/peaks)
		measure "${_name}_runnable" "$(of runnable)" tasks
		measure "${_name}_memory" "$(of memory)" MiB
	fi
	wait $_frames $_wakes
	_peak=${SEEN:-}
	SEEN=$(cat /tmp/frames)
	_line="frames p50 $(of done_p50_us) p99 $(of done_p99_us) us, late $(of done_late) of $(of wakes)"
	measure "${_name}_frames_p99" "$(of done_p99_us)" us
	measure "${_name}_frames_late" "$(of done_late)" frames
	SEEN=$(cat /tmp/wakes)
	measure "${_name}_wakes_p99" "$(of p99_us)" us
	echo "$(nproc) CPUs, $1, $3: builds $_took ms, $_peak; $_line; wakes p50 $(of p50_us) p99 $(of p99_us) us"
	SEEN=
	sleep 1
}

for online in "2" "2 4 6"; do
	# shellcheck disable=SC2086 # a list of words
	cpus $online
	# Four builds of four files a CPU, of some 0.1 s each.
	for build in 1 2 3 4; do
		sources /tmp/build$build $(($(nproc) * 4)) 2
		chown -R guest /tmp/build$build
	done
	for arm in alone plain nice idle tidegate; do beside session session $arm; done
	for arm in alone plain nice tidegate jobserver root; do beside user/app user/build $arm; done
done
