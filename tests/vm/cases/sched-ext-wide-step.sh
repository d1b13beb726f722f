# what: main steps up on two and four CPUs under virtual time: side work is within 5 points of its new allowance in 2 ms, and comes back
# modes: wide
# tier: long
# seconds: 200
group main side eye
# The kernel tells the caches of CPUs on line alone, and the scheduler reads them once.
cpus 2 4 6 8 10 12 14
# The reader is to read while main runs, too.
sched_ext_on --gate 'cgroup:/eye latency=-20' --gate 'cgroup:/main class=main headroom=30%' --gate 'cgroup:/side class=side'
for n in 1 2 3 4 5 6 7 8; do
	into side vmtool burn &
done

# steps FROM TO LIMIT WAY: a task of main's on each CPU; LIMIT in percent of the machine.
steps() {
	mains=
	rm -f /tmp/step.*
	for n in $(seq "$many"); do
		into main vmtool step $1 $2 5000 2 3 /tmp/step.$n &
		mains="$mains $!"
	done
	inside eye vmtool clocks 2.8 1000 side >/tmp/series
	wait $mains
	# They begin one after the other.
	last=$(cat /tmp/step.* | sort -n | tail -n 1)
	took=$(reaction /tmp/series "$last" $(($3 * many)) $4)
	[ -n "$took" ] || fail "side never came $4 to $3 % after main went from $1 to $2 % on $many CPUs"
	measure "main_$1_to_$2_on_$many" "$took" ms
}

for online in "4" "4 8 12"; do
	cpus $online
	sleep 1
	steps 10 40 35 down
	within "time to give way on $many CPUs, main 10 to 40 %, in ms" "$took" 0 2
	steps 10 80 6 down
	within "time to give way on $many CPUs, main 10 to 80 %, in ms" "$took" 0 2
	steps 80 10 55 up
	within "time to come back on $many CPUs, main 80 to 10 %, in ms" "$took" 0 500
done
sched_ext_off
