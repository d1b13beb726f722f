# what: with threads and caches: main on whole idle cores first, side work packed onto few, wakeups in their cache while it has an idle CPU
# modes: wide
# tier: long
# seconds: 300

# On two sockets of two cores of two threads each.
cpus 2 4 6 8 10 12 14
group main side

# look WHAT SECONDS FILE...: who ran beside whom.
look() {
	_what=$1
	shift
	SEEN=$(vmtool cores "$@")
	echo "$_what: $SEEN"
}

pinned=
# all PREFIX: without side work.
all() {
	into main vmtool places /tmp/main 4 1000 0 &
	burners=$!
	sleep 1
	look "$1: four that burn" 3 4100 /tmp/main
	measure "$1_burners_shared" "$(of main.shared)" %
	eval "$1_burners=$(of main.shared)"
	into main vmtool places /tmp/pulse 2 2000 9700 &
	pulses=$!
	sleep 1
	look "$1: two that pulse beside them" 3 1100 /tmp/main /tmp/pulse
	measure "$1_pulse_moved" "$(of pulse.moved)" %
	measure "$1_pulse_late" "$(of pulse.late_us)" us
	eval "$1_moved=$(of pulse.moved) $1_late=$(of pulse.late_us)"
	finish $burners $pulses
	into main vmtool places /tmp/main 4 3000 9700 &
	pulses=$!
	sleep 1
	look "$1: four that pulse" 3 1100 /tmp/main
	measure "$1_pulses_shared" "$(of main.shared)" %
	measure "$1_pulses_moved" "$(of main.moved)" %
	eval "$1_pulses=$(of main.shared)"
	finish $pulses
	# The first socket is full of work that cannot leave it.
	for cpu in 0 2 4 6; do
		into main taskset -c $cpu vmtool burn &
		pinned="$pinned $!"
	done
	into main taskset -c 0,2,4,6,8,10,12,14 vmtool places /tmp/pulse 2 2000 9700 &
	pulses=$!
	sleep 1
	look "$1: two that pulse beside a full socket" 3 1100 /tmp/pulse
	measure "$1_overflow_late" "$(of pulse.late_us)" us
	eval "$1_overflow=$(of pulse.late_us)"
	finish $pinned $pulses
	pinned=
}
all eevdf
# The kernel's own scheduler, for the bed itself: a core to each of four.
within "burners that share a core under the kernel's own scheduler, percent" "$eevdf_burners" 0 5
sched_ext_on --gate 'cgroup:/main class=main headroom=50%' --gate 'cgroup:/side class=side'
all sched_ext
# Before tasks that never sleep spread at the end of a slice it was 55.
within "burners that share a core, percent" "$sched_ext_burners" 0 5
within "pulses that share a core, percent" "$sched_ext_pulses" 0 5
within "wakeups in another cache beside burners, percent" "$sched_ext_moved" 0 2
# A turn of five busy CPUs is 50 us, and the work before a wakeup is shown a few of them.
within "lateness of pulses beside burners, us" "$sched_ext_late" 0 300
within "lateness of pulses beside a full socket, us" "$sched_ext_overflow" 0 300

# Side work has cores of its own: half of eight CPUs is kept idle, main has one or two.
into side vmtool places /tmp/side 12 1000 0 &
side=$!
for burners in 1 2; do
	into main vmtool places /tmp/main $burners 1000 0 &
	mains=$!
	sleep 1
	look "main burns on $burners" 3 1100 /tmp/main /tmp/side
	measure "main_shared_$burners" "$(of main.shared)" %
	measure "side_cores_$burners" "$(of side.cores)" cores
	within "main on $burners that shares a core, percent" "$(of main.shared)" 0 5
	within "side work that runs beside $burners of main's" "$(of side.running)" $((3 - burners)).5 $((4 - burners)).3
	within "cores of side work beside $burners of main's" "$(of side.cores)" 0.8 $((3 - burners)).3
	finish $mains
done
into main vmtool places /tmp/main 2 3000 9700 &
mains=$!
sleep 1
look "main pulses on two" 3 1100 /tmp/main /tmp/side
within "main that pulses on two and shares a core, percent" "$(of main.shared)" 0 5
finish $mains
sched_ext_off
