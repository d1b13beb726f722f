# what: with burst = max under the sched_ext engine a bursty service is as fast as without a limit, and a hog gets no more than the quota
# modes: precise
# tier: long
# seconds: 180
# 35 ms of work, then 393 ms of rest: 8 % of a CPU, which begins everywhere in a period of 100 ms in
# turn.
service() {
	SEEN=$(inside service vmtool wake 20 393000 35000)
	echo "$1: $SEEN"
}
group service
sched_ext_on --json
service unlimited
free=$(of done_p99_us)
tidegate set cgroup:/service quota=20ms
service "20 ms in 100 ms"
without=$(of done_p99_us)
tidegate set cgroup:/service burst=max
same "the most burst" "$(cat $ROOT/service/cpu.max.burst)" 20000
sleep 1
service "and a burst of 20 ms"
with=$(of done_p99_us)
measure p99_unlimited "$free" us
measure p99_quota "$without" us
measure p99_burst "$with" us
within "the quota's p99, of the free one's" "$(awk -v a="$without" -v b="$free" 'BEGIN { print a / b }')" 2 10
within "the burst's p99, of the free one's" "$(awk -v a="$with" -v b="$free" 'BEGIN { print a / b }')" 0.9 1.2

# What was saved is spent once: a hog has quota and burst at the start, and the quota in each of the
# 100 periods that begin.
sleep 1
inside service vmtool burn &
SEEN=$(vmtool watch 10 service)
measure hog_with_what_was_saved "$(of service)" %
within "a hog's first 10 s with 20 ms in 100 ms and a burst of 20 ms" "$(of service)" 20 20.45
SEEN=$(vmtool watch 10 service)
measure hog_afterwards "$(of service)" %
within "and the next 10 s" "$(of service)" 19.9 20.1
sleep 1.1
line=$(tail -n 1 /tmp/sched_ext)
same "the quota as the engine has it" "$(echo "$line" | json quota_us)" 20000
same "the burst as the engine has it" "$(echo "$line" | json burst_us)" 20000
within "bursts" "$(echo "$line" | json nr_bursts)" 20 60
within "throttled periods" "$(echo "$line" | json nr_throttled)" 200 360
sched_ext_is_on
