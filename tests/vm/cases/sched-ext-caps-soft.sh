# what: the sched_ext engine's soft caps: a hog at 200 ‰ gets that beside another hog and all alone, 0 only what nobody wants, both yield at once
# modes: precise
# tier: long
# seconds: 120
group soft zero other
sched_ext_on --gate "cgroup:/soft cap_soft=200‰" --gate "cgroup:/zero cap_soft=0"

# alone_and_beside GROUP LEAST MOST: its use in percent beside a hog without a cap, and alone.
alone_and_beside() {
	inside $1 vmtool burn &
	sleep 1
	SEEN=$(vmtool clock 3 $1)
	measure ${1}_alone "$(of $1)" %
	within "$1 alone" "$(of $1)" 98 100.1
	inside other vmtool burn &
	sleep 1
	see vmtool clock 5 $1 other
	measure ${1}_beside_a_hog "$(of $1)" %
	within "$1 beside a hog" "$(of $1)" $2 $3
	within "the CPU" "$(of idle)" -0.1 0.4
	echo 1 >$ROOT/other/cgroup.kill
	sleep 1
	SEEN=$(vmtool clock 1 $1)
	within "$1, once the hog is gone" "$(of $1)" 98 100.1
	# Who wakes up does not wait for it.
	WAKES=$(inside other vmtool wake 3 7000 100)
	echo "$WAKES"
	P99=$(echo "$WAKES" | tr ' ' '\n' | sed -n 's/^p99_us=//p')
	measure wakes_beside_${1}_p99 "$P99" us
	within "p99 of a wakeup beside $1" "$P99" 0 4000
	echo 1 >$ROOT/$1/cgroup.kill
}
alone_and_beside soft 19.9 20.1
alone_and_beside zero 0 0.1
sched_ext_is_on
cat /tmp/sched_ext
