# what: tasks that may run on some CPUs only, and that wait by the hundred, hide nobody who waits for another CPU of the cache
# modes: wide
# kernels: 6.18
# needs: tidegate
# tier: long
# seconds: 60
cpus 4
sched_ext_on
# CPUs 1 and 5 are never on line.
many=
for n in $(seq 100); do
	taskset 3 vmtool burn &
	many="$many $!"
done
few=
for n in 1 2 3 4; do
	taskset 30 vmtool burn &
	few="$few $!"
done
sleep 1
before=$(vmtool cpu $few)
sleep 2
printf '%s\n%s\n' "$before" "$(vmtool cpu $few)" |
	awk 'NR <= 4 { was[NR] = $1; next } { ns = $1 - was[NR - 4]; sum += ns; if (NR == 5 || ns < least) least = ns } END { printf "%.3f", least * 4 / sum }' >/tmp/least
measure least_share_of_the_mean "$(cat /tmp/least)" times
within "the least share of four hogs beside a hundred on another CPU" "$(cat /tmp/least)" 0.9 1
sched_ext_is_on
finish $many $few
sched_ext_off
