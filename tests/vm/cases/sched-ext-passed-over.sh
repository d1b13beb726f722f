# what: 1,000 tasks that wait for other CPUs keep no CPU from the task behind them, nor does it pass over all of them at each pick
# modes: wide
# tier: long
# seconds: 120
group many few
cpus 4
sched_ext_on --json --cost
# CPUs 2 and 6 are offline: two CPUs are allowed, so each waits in the cache's queue for tasks of
# several CPUs.
start many taskset 50 vmtool threads 1000
many=$STARTED
sleep 2
start few taskset 05 vmtool burn
few=$STARTED
sleep 0.5
before=$(usage few)
sleep 2
share=$(($(usage few) - before))
measure share_behind_1000 "$((share / 2000))" thousandths
kill -9 $many $few
sleep 1
sched_ext_off
# `name runs run_ns` of the last object's programs.
mean=$(sched_ext_fields | awk -F: '
	/"programs"/ { inside = 1 }
	!inside { next }
	/"name"/ { gsub(/[" ]/, "", $2); name = $2 }
	/"runs"/ { runs = $2 + 0 }
	/"run_ns"/ && name == "dispatch" { print int($2 / runs) }
	/"uptime_s"/ { inside = 0 }' | tail -n 1)
measure dispatch_mean "$mean" ns
within "the share of a task behind 1,000 that may not run on its CPU, in a thousandth" "$((share / 2000))" 950 1010
within "the mean of dispatch, in ns" "$mean" 0 10000
