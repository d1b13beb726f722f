# what: Debian's stress-ng, class scheduler: each stressor ends under sched_ext, with side work and a capped group beside it, as it does under the kernel's own scheduler
# modes: smp
# needs: stress-ng
# seconds: 1500
# tier: long
command -v stress-ng >/dev/null || skip "stress-ng is not installed on the host (apt-get install stress-ng)"
group side capped main

# stress FILE: each stressor's result, a line each. Two processes of each, for 2 s; one that does
# not end is ended after 60 s.
stress() {
	: >"$1"
	for _name in $(stress-ng --class 'scheduler?' 2>&1 | sed -n "s/.*stressors: //p"); do
		_rc=0
		now
		_began=$NOW
		inside main timeout -s KILL 60 stress-ng --temp-path /tmp --$_name 2 --timeout 2 >/tmp/out 2>&1 || _rc=$?
		now
		echo "$_name $_rc" >>"$1"
		echo "$_name: $_rc after $(((NOW - _began) / 100)) s"
		[ "$_rc" = 0 ] || tail -n 3 /tmp/out
		[ -z "${EXT:-}" ] || left
	done
}

on() { sched_ext_on --json --gate 'cgroup:/side class=side headroom=20%' --gate 'cgroup:/capped cap_hard=200‰'; }

# left: before 7.0 the scheduler leaves real-time stressors alone, and says so; any other end is a
# failure.
left() {
	[ "$(sched_ext_state)" != enabled ] || return 0
	until_true 60 sh -c "! [ -d /proc/$EXT ]" || true
	! ls /sys/kernel/debug/sched/ext_server >/dev/null 2>&1 && grep -aq 'was ejected.*real-time' /tmp/sched_ext || {
		grep -a -v '^{' /tmp/sched_ext | head -c 20000
		fail "$_name: $(grep -ao 'was ejected.*' /tmp/sched_ext | tail -n 1)"
	}
	wait $EXT || true
	LEFT=$((LEFT + 1))
	on
}

LEFT=0
start side vmtool threads 2
start capped vmtool threads 2
echo "the kernel's own scheduler"
stress /tmp/fair
echo "sched_ext"
on
stress /tmp/ext-ran
measure left_to_real_time $LEFT times
# Some end with an error by themselves: resched ends its children while they write what it then
# checks.
# Before 7.0 an ordinary task has what real-time tasks leave: one of mutex's may not get as far as
# to make its threads (3).
ls /sys/kernel/debug/sched/ext_server >/dev/null 2>&1 && may= || may="mutex 3"
worse=$(awk -v may="$may" 'NR == FNR { fair[$1] = $2; next } fair[$1] == 0 && $2 != 0 && $0 != may { print $1 ": " $2 }' /tmp/fair /tmp/ext-ran)
[ -z "$worse" ] || fail "these end well under the kernel's own scheduler: $worse"
same "stressors that ran" "$(grep -c . /tmp/ext-ran)" "$(grep -c . /tmp/fair)"
measure stressors "$(grep -c . /tmp/fair)" stressors
sched_ext_is_on
