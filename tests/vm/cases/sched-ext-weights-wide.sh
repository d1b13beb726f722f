# what: weights, side work and hints on two, four and eight CPUs; beside a task whose weight is worth more than a CPU hints still count
# modes: wide
# tier: long
# seconds: 400
group a b b/side heavy light

# burn GROUP COUNT: into $HOGS.
burn() {
	for _ in $(seq "$2"); do
		start "$1" vmtool burn
		HOGS="$HOGS $STARTED"
	done
}

# woken NAME: a periodic task of the shortest slice (hint -20) in `light`, beside a hog for each CPU
# there.
woken() {
	SEEN=$(inside light vmtool sliced 100000 vmtool wake 2 5000 200)
	echo "$1 on $many: $SEEN"
	measure "$1_p50_on_$many" "$(of p50_us)" us
	measure "$1_p99_on_$many" "$(of p99_us)" us
}

# hints PREFIX
hints() {
	HOGS=
	burn light "$many"
	sleep 0.5
	woken "$1_beside_light"
	burn heavy 1
	sleep 0.5
	woken "$1_beside_heavy"
	finish $HOGS
}

echo 10000 >$ROOT/heavy/cpu.weight
echo 300 >$ROOT/b/cpu.weight
for online in "2" "2 4 6" "2 4 6 8 10 12 14"; do
	cpus $online
	hints eevdf
	sched_ext_on --gate 'cgroup:/b/side class=side headroom=20%'
	hints sched_ext
	within "p99 of a wakeup at -20 beside a heavy hog on $many CPUs, us" "$(of p99_us)" 0 400

	# A quarter, with a hog for each CPU in each group.
	HOGS=
	burn a "$many"
	burn b "$many"
	sleep 1
	see vmtool clock 3 a b
	measure "weight_100_of_400_on_$many" "$(of a)" %
	within "weight 100 beside 300 on $many CPUs" "$(of a)" 24.5 25.5
	burn b/side "$many"
	sleep 1
	see vmtool clock 3 a b b/side
	measure "beside_side_on_$many" "$(of a)" %
	within "weight 100 beside 300 that has side work, too, on $many CPUs" "$(of a)" 24 25.5
	finish $HOGS

	# More than a CPU is worth nothing: what one leaves is the others'.
	HOGS=
	burn heavy 1
	burn light "$many"
	sleep 1
	see vmtool clock 3 heavy light
	measure "heavy_on_$many" "$(of heavy)" %
	within "a hog that is worth more than one of $many CPUs, in CPUs" "$(awk -v x="$(of heavy)" -v n="$many" 'BEGIN { print x * n / 100 }')" 0.95 1.01
	finish $HOGS
	sched_ext_off
done
