# what: with a cache for each CPU, hogs are dealt out evenly, and no task is lost between the caches
# modes: smp
# tier: long
# seconds: 400
sched_ext_on --caches 2
group a b

# Affinity, stops and moves, of two hogs and a sleeper.
start a vmtool threads 2
hog=$STARTED
start b vmtool wake 60 2000 100 >/dev/null
sleeper=$STARTED
disturb $hog $sleeper

finish $hog $sleeper

# Six hogs that begin on one CPU have even shares once they may go where they like.
hogs=
for n in 1 2 3 4 5 6; do
	taskset 1 vmtool burn &
	hogs="$hogs $!"
done
sleep 0.5
for pid in $hogs; do taskset -p 3 $pid >/dev/null; done
sleep 2
before=$(vmtool cpu $hogs)
sleep 8
printf '%s\n%s\n' "$before" "$(vmtool cpu $hogs)" |
	awk 'NR <= 6 { was[NR] = $1; next } { ns = $1 - was[NR - 6]; sum += ns; if (NR == 7 || ns < least) least = ns } END { print least * 6 / sum }' >/tmp/least
measure least_share_of_the_mean "$(cat /tmp/least)" times
within "the least share of six hogs on two caches, of a sixth" "$(cat /tmp/least)" 0.6 1
vmtool build 4 40
sched_ext_is_on
finish $hogs
sched_ext_off
cat /tmp/sched_ext
