# What every guest test has at hand; sourced before the test. `set -eu` holds: a command that fails
# ends the test.
set -eu
ROOT=/sys/fs/cgroup

uptime() { cut -d' ' -f1 /proc/uptime; }

# now: hundredths of a second since the start, in $NOW. It starts no process, since a test that
# waits asks often.
now() { read -r NOW _ </proc/uptime && NOW=${NOW%.*}${NOW#*.}; }

# fail WORDS: the test fails, with the reason on one line.
fail() {
	echo "$*" >/tmp/why
	echo "FAIL: $*"
	exit 1
}

# skip WORDS: this machine cannot show it.
skip() {
	echo "$*" >/tmp/why
	exit 77
}

# measure NAME VALUE UNIT: a figure for the report.
measure() { echo "@@tg $(uptime) measure $TEST $1 $2 $3"; }

# same WHAT FOUND WANTED
same() { [ "$2" = "$3" ] || fail "$1 is '$2', not '$3'"; }

# within WHAT FOUND LOW HIGH (decimal numbers)
within() {
	awk -v x="$2" -v a="$3" -v b="$4" 'BEGIN { exit !(x != "" && x >= a && x <= b) }' || fail "$1 is '$2', not within $3..$4"
}

# until_true SECONDS COMMAND...: waits for it to succeed. Often at first, then less: a look takes
# milliseconds of the one CPU.
until_true() {
	now
	_end=$((NOW + $1 * 100))
	_often=$((NOW + 30))
	shift
	until "$@"; do
		now
		[ "$NOW" -lt "$_end" ] || return 1
		[ "$NOW" -lt "$_often" ] && sleep 0.02 || sleep 0.25
	done
}

# group NAME...: makes groups below the root; a NAME may be a path.
group() { (cd $ROOT && mkdir -p "$@"); }

# inside GROUP COMMAND...: runs it in that group, in the foreground.
inside() { (into "$@"); }

# into GROUP COMMAND...: the same in place of this shell: `into a vmtool burn &` leaves the
# command's own PID in $!.
into() {
	_group=$1
	shift
	exec sh -c 'echo 0 >"$0/cgroup.procs"; exec "$@"' "$ROOT/$_group" "$@"
}

# start GROUP COMMAND...: runs it in that group, in the background; its process is $STARTED.
start() {
	into "$@" &
	STARTED=$!
}

# usage GROUP: its CPU time so far, in µs.
usage() { awk '/^usage_usec/ { print $2 }' "$ROOT/$1/cpu.stat"; }

# see COMMAND...: what it prints is shown, and kept in $SEEN.
see() {
	SEEN=$("$@")
	echo "$SEEN"
}

# of KEY: that key of the last `vmtool watch` or `floor` line in $SEEN ("idle=30.00 a=1.00 ...",
# percent of the machine).
of() { echo "$SEEN" | tr ' ' '\n' | sed -n "s|^$1=||p"; }

# reaction FILE STEP_NS LIMIT_PERCENT WAY: ms from the step to the first moment after which the next
# 100 ms of side stay below the limit (or above it, for a step down).
reaction() {
	awk -v t0="$2" -v limit="$3" -v way="$4" '
		{ t[NR] = $1 / 1e6; u[NR] = $2 / 1e3 }
		END {
			for (i = 1; i < NR; i++) {
				if (t[i] < t0 / 1e6) continue
				for (j = i; j < NR && t[j] - t[i] < 100;) j++
				if (j >= NR) exit
				rate = 100 * (u[j] - u[i]) / (t[j] - t[i])
				if (way == "down" ? rate <= limit : rate >= limit) { printf "%.1f", t[i] - t0 / 1e6; exit }
			}
		}' "$1"
}

# excess FILE STEP_NS NEW_PERCENT FREE_PERCENT: the same as a length of time without a window's
# blur: the most that side had beyond its new allowance at any time in the next half second, in ms
# of taking all that main left free.
excess() {
	awk -v t0="$2" -v new="$3" -v free="$4" '
		$1 < t0 { t = $1; u = $2; next }
		$1 > t0 + 5e8 { next }
		{
			beyond = ($2 - u) / 1e3 - new / 100 * ($1 - t) / 1e6
			if (beyond > most) most = beyond
		}
		END { printf "%.1f", most / ((free - new) / 100) }' "$1"
}

# gives_way FROM TO LIMIT NEW FREE MS EXCESS_MS: main steps up by the test's own `steps`: side is at
# LIMIT within MS, and its excess over NEW of FREE is at most EXCESS_MS.
gives_way() {
	steps "$1" "$2" "$3" down
	within "time to give way, main $1 to $2 %, in ms" "$took" 0 "$6"
	late=$(excess /tmp/series "$(cat /tmp/step)" "$4" "$5")
	measure "main_$1_to_$2_excess" "$late" ms
	within "excess after main's step from $1 to $2 %, in ms" "$late" 0 "$7"
}

# cpus NUMBER...: in wide mode, CPU 0 and these are on line, and no others. CPUs 0 and 2 are threads
# of a core, as are 4 and 6 of the next; 8, 10, 12 and 14 are the same on the other socket, with a
# cache of their own. How many are on line is $many.
cpus() {
	for _cpu in 2 4 6 8 10 12 14; do
		case " $* " in *" $_cpu "*) _on=1 ;; *) _on=0 ;; esac
		echo $_on >/sys/devices/system/cpu/cpu$_cpu/online
	done
	many=$(nproc)
}

# What follows is for tests of the engine.
SIDE=tidegate-side
MAIN=tidegate-main

# cgroup_of PID
cgroup_of() { sed -n 's/^0:://p' "/proc/$1/cgroup"; }

# seen SECONDS GROUP...: reads the machine once the shell's own commands are over, the start of what
# reads it included. Each of those is a burst of main that takes the one CPU whole, so the engine
# cuts for it and gives back over half a second.
seen() {
	see vmtool settled "$@"
}

# json KEY: the first scalar value of that key in the JSON on standard input.
json() { tr -d '\n' | tr ',{}' '\n\n\n' | sed -n "s/^ *\"$1\": *//p" | head -n 1 | tr -d '" '; }

agent() { tidegate status --json | json pid; }
guardian() { tidegate status --json | json guardian_pid; }
alive() { [ -n "$1" ] && [ -d "/proc/$1" ] && ! grep -q "^State:.*Z" "/proc/$1/status"; }

# Every process of ours, by name: the agent and its guardian.
ours() { pidof tidegate || true; }

# Side work is held: its root is idle class and has a quota.
held() {
	[ "$(cat $ROOT/$SIDE/cpu.idle)" = 1 ] && [ "$(cut -d' ' -f1 $ROOT/$SIDE/cpu.max)" != max ]
}

gone() { [ -z "$(ls -d $ROOT/tidegate-* 2>/dev/null)" ] && [ -z "$(ours)" ]; }

# gone_soon [PID...]: these, the last gates, are ended: the agent leaves and takes everything with
# it.
gone_soon() {
	finish "$@"
	until_true 10 gone || fail "left behind: groups '$(ls -d $ROOT/tidegate-* 2>/dev/null | tr '\n' ' ')', processes '$(ours)'"
}

# gate PID CLASS_GROUP: that process is in a gate below CLASS_GROUP within 20 s (real time in smp
# mode, where a busy host makes all slow).
in_gate() {
	cgroup_of "$1" | grep -q "^/$2/."
}
gate_soon() {
	until_true 20 in_gate "$1" "$2" || fail "process $1 is in '$(cgroup_of "$1")', not below /$2"
}

# run_gated NAME WORDS...: `tidegate run WORDS` in the background, until it is in its gate; its
# process is in the variable NAME.
run_gated() {
	_gated=$1
	shift
	tidegate run "$@" &
	eval "$_gated=\$!"
	case $1 in --side) gate_soon $! $SIDE ;; *) gate_soon $! $MAIN ;; esac
}

# finish PID...: ends our own children and waits for them.
finish() {
	kill "$@" 2>/dev/null || true
	for _pid in "$@"; do wait "$_pid" || true; done
}

# What follows is for bursts of main beside side work.

# side_work KIND WORDS...: starts it with WORDS, and gives it 2 s. `fresh` is two tasks a CPU that
# work 2 ms and rest 3, anything else an endless one a CPU.
side_work() {
	case $1 in
	fresh) _tasks=$(($(nproc) * 2)) _work="duty 40 5000" ;;
	*) _tasks=$(nproc) _work=burn ;;
	esac
	shift
	SIDE_WORK=
	for _n in $(seq "$_tasks"); do
		# shellcheck disable=SC2086 # a list of words
		"$@" vmtool $_work &
		SIDE_WORK="$SIDE_WORK $!"
	done
	sleep 2
}

# shellcheck disable=SC2086 # a list of words
side_work_over() { finish $SIDE_WORK; }

# sources FOLDER FILES FUNCTIONS: what make and cc1 build there; two functions take some 0.1 s.
sources() {
	mkdir -p "$1"
	{
		echo "OBJECTS = $(for n in $(seq "$2"); do printf '%s.s ' "$n"; done)"
		echo "all: \$(OBJECTS)"
		printf '$(OBJECTS): unit.c\n\tcc1 -quiet -ffreestanding -O2 unit.c -o $@\n'
	} >"$1/Makefile"
	awk -v functions="$3" 'BEGIN {
		print "struct list { int of[16]; struct list *next; };"
		for (i = 0; i < functions; i++)
			printf "int f%d(struct list *p, int k) { int t = 0; for (; p; p = p->next) for (int i = 0; i < 16; i++) {" \
				" if (p->of[i] > k) t += p->of[i] * %d; else if (p->of[i] & 1) t ^= k << (i & 7);" \
				" else t -= p->of[i] / (k + %d); } return t; }\n", i, i + 3, i + 1
	}' >"$1/unit.c"
}

# bursts_of GROUP MS: what a main in GROUP needs for bursts of MS in 4 s, with rests of four times
# that, into $SEEN.
bursts_of() { SEEN=$(inside "$1" vmtool wake 4 $(($2 * 4000)) $(($2 * 1000))); }

# bursts_at_random MS GROUP...: the same of mains that rest for random times, one in each GROUP, at
# once: the sums over them and the highest percentiles.
bursts_at_random() {
	_us=$(($1 * 1000))
	shift
	_seed=0 _mains=
	for _group in "$@"; do
		_seed=$((_seed + 1))
		start "$_group" vmtool wake 4 $((_us * 4)) $_us $_seed >/tmp/main$_seed
		_mains="$_mains $STARTED"
	done
	for _pid in $_mains; do wait "$_pid"; done
	SEEN=$(for _n in $(seq $_seed); do cat /tmp/main$_n; done | tr '= ' ' \n' | awk '
		/^wakes|^done_late/ { sum[$1] += $2 }
		/^done_p/ && $2 > sum[$1] { sum[$1] = $2 }
		END { for (key in sum) printf "%s=%s ", key, sum[key] }')
}

# bursts_seen NAME WORDS: what is in $SEEN, to the report.
bursts_seen() {
	echo "$2: p50 $(of done_p50_us) p99 $(of done_p99_us); late $(of done_late) of $(of wakes)"
	measure "$1_p99" "$(of done_p99_us)" us
	measure "$1_late" "$(awk -v late="$(of done_late)" -v all="$(of wakes)" 'BEGIN { printf "%.1f", 100 * late / all }')" %
}

# few_are_late WHAT: notes in $MANY_LATE where more than two in a hundred are. The rows after it are
# still measured.
MANY_LATE=
few_are_late() {
	[ "$(($(of done_late) * 50))" -le "$(of wakes)" ] ||
		MANY_LATE="$MANY_LATE$1: $(of done_late) of $(of wakes) are late; "
}
none_has_many_late() { [ -z "$MANY_LATE" ] || fail "$MANY_LATE"; }

# What follows is for tests of the sched_ext engine.

# sched_ext_fields: all that the scheduler's statistics have shown, a key and its value a line.
sched_ext_fields() { tr ',{}[]' '\n\n\n\n\n' </tmp/sched_ext; }

sched_ext_state() { cat /sys/kernel/sched_ext/state 2>/dev/null; }

# sched_ext_is_on: our scheduler is in force, now.
sched_ext_is_on() {
	[ "$(sched_ext_state)" = enabled ] || { sleep 2; tail -c 20000 /tmp/sched_ext; }
	same "the state of sched_ext" "$(sched_ext_state)" enabled
	same "the scheduler" "$(cat /sys/kernel/sched_ext/root/ops)" tidegate
}

# sched_ext_on ARGUMENTS: loads the scheduler, without an agent
# (crates/agent/examples/scheduler.rs), and waits until it is in force;
# its words go to /tmp/sched_ext.
sched_ext_on() {
	scheduler "$@" >/tmp/sched_ext 2>&1 &
	EXT=$!
	while [ "$(sched_ext_state)" != enabled ]; do
		alive $EXT || { cat /tmp/sched_ext; fail "the scheduler did not load"; }
		sleep 0.2
	done
	sched_ext_is_on
}

# sched_ext_off: ends it while it is in force, and sees that the kernel's own scheduler is back.
sched_ext_off() {
	sched_ext_is_on
	kill -INT $EXT
	wait $EXT || { cat /tmp/sched_ext; fail "the scheduler ended with an error"; }
	same "the state of sched_ext" "$(sched_ext_state)" disabled
}

# disturb HOG SLEEPER: affinity, stops and moves between the groups a and b, nice levels and
# weights; both must live through it.
disturb() {
	for round in 1 2 3 4 5 6; do
		taskset -p 1 "$1" >/dev/null
		echo "$1" >$ROOT/b/cgroup.procs
		kill -STOP "$1"
		taskset -p 2 "$2" >/dev/null
		sleep 0.2
		kill -CONT "$1"
		taskset -p 3 "$1" >/dev/null
		echo "$1" >$ROOT/a/cgroup.procs
		renice -n $round -p "$2" >/dev/null
		taskset -p 3 "$2" >/dev/null
		echo $((round * 100)) >$ROOT/a/cpu.weight
		sleep 0.2
	done
	sched_ext_is_on
	alive "$1" || fail "the hog is lost"
	alive "$2" || fail "the sleeper is lost"
}

# agent_ext_on AGENT: waits until that agent has its scheduler in force. The kernel checks the
# programs for a while, so look seldom.
agent_ext_on() {
	while [ "$(sched_ext_state)" != enabled ]; do
		alive "$1" || { cat /tmp/agent; fail "the agent did not start"; }
		sleep 2
	done
	same "the scheduler" "$(cat /sys/kernel/sched_ext/root/ops)" tidegate
	measure loaded_at "$(uptime)" s
}

# agent_ext_begin: an agent with that engine; its process is $AGENT.
agent_ext_begin() {
	tidegate agent run --engine sched_ext >/tmp/agent 2>&1 &
	AGENT=$!
	agent_ext_on $AGENT
}

# What follows is for ejections: main that takes all, side work, and a hard cap of 200 permille.
eject_work() {
	rm -f /tmp/turns /tmp/capped
	tidegate run --main -- vmtool burn &
	HOG=$!
	tidegate run --side --headroom 25% -- vmtool count /tmp/turns &
	TURNS=$!
	tidegate run --cap 200‰ --name capped -- vmtool count /tmp/capped &
	CAPPED=$!
	gate_soon $HOG $MAIN
	gate_soon $TURNS $SIDE
	gate_soon $CAPPED $MAIN
	until_true 20 [ -s /tmp/turns ]
	until_true 20 [ -s /tmp/capped ]
}

# Side work has a quota. (Its idle class it may leave for a while: cgroup lets it have its tolerance
# on a full machine.)
quota_stands() { [ "$(cut -d' ' -f1 $ROOT/$SIDE/cpu.max)" != max ]; }

# around WHAT COMMAND...: runs that, and sees that what is mirrored holds over the 5 s around it.
around() {
	_what=$1
	shift
	vmtool watch 5 /tmp/turns /tmp/capped >/tmp/seen &
	_watch=$!
	"$@"
	wait $_watch
	SEEN=$(cat /tmp/seen)
	echo "$_what: $SEEN"
	quota_stands || fail "$_what: side work has no quota: '$(cat $ROOT/$SIDE/cpu.max)'"
	within "side work around $_what, beside a main that takes all" "$(of /tmp/turns)" 0 2
	within "use under a cap of 200 permille around $_what" "$(of /tmp/capped)" 17 20.5
	for _task in $HOG $TURNS $CAPPED; do alive $_task || fail "$_what: process $_task is lost"; done
}

sched_ext_went() {
	same "the state of sched_ext after $1" "$(sched_ext_state)" disabled
	EJECTED=$((${EJECTED:-0} + 1))
}

# ejected WHAT COMMAND...: the same with what ends the scheduler.
ejected() {
	sched_ext_is_on
	around "$@"
	sched_ext_went "$1"
}

# ext_server NS: what the kernel's deadline server gives tasks of sched_ext in a second beside
# real-time tasks (from 7.0 on).
ext_server() {
	[ -d /sys/kernel/debug/sched ] || mount -t debugfs debugfs /sys/kernel/debug
	for _server in /sys/kernel/debug/sched/ext_server/cpu*/runtime; do
		[ ! -e "$_server" ] || echo "$1" >"$_server"
	done
}

# dump_tells PATTERN: the kernel's dump of the last failure, as the agent logged it, has such a
# line.
dump_tells() {
	grep -m 1 "sched_ext: dump: .*$1" /tmp/agent || fail "the dump has no '$1': $(grep 'sched_ext: dump:' /tmp/agent | head -n 60)"
}

# ejected_by_real_time WHAT: a real-time task withholds the CPU for longer than the scheduler stays
# (3 s; from 7.0 on the kernel's server is switched off for it), so what is mirrored can show itself
# only afterwards.
ejected_by_real_time() {
	sched_ext_is_on
	echo -1 >/proc/sys/kernel/sched_rt_runtime_us
	ext_server 0
	vmtool realtime 50 vmtool burn 6
	ext_server 50000000
	echo 950000 >/proc/sys/kernel/sched_rt_runtime_us
	around "$1" true
	sched_ext_went "$1"
}

# What counts its turns costs the emulator dearly, and there is half a minute to wait until the
# scheduler is loaded again.
sched_ext_again() {
	kill -STOP $TURNS $CAPPED
	agent_ext_on $AGENT
	kill -CONT $TURNS $CAPPED
}
by_sysrq() { echo S >/proc/sysrq-trigger; }
by_kill() { kill -9 $AGENT; }

# told WORDS: status says that sched_ext is off, and why.
told() {
	tidegate status >/tmp/status
	sed -n 2,3p /tmp/status
	sed -n 2,3p /tmp/status | grep -q "sched_ext off: .*$1" || fail "status does not say that sched_ext is off for $1"
}

# What follows is for stress: groups of all terms, torment in them (vmstress.c), and a heart
# (vmheart.c) beside it.

# json_last KEY: the last value of that key that the scheduler's statistics have shown.
json_last() { sched_ext_fields | sed -n "s/^\"$1\"://p" | tail -n 1; }

# stood SECONDS: for how many of the last SECONDS the host did not run the guest: times at which
# even the heart was late, and in which the guest's CPUs were busy for less than half of it (else
# the guest itself is to blame).
stood() { awk -v now="$(uptime)" -v span="$1" '$1 > now - span && $3 < $2 / 2 { sum += $2 } END { print int(sum) }' /tmp/heart; }

stress_groups() {
	EJECTED=0
	vmtool heart /tmp/heart &
	group quota main side hard soft nested/in churns idle
	echo "+cpu" >$ROOT/nested/cgroup.subtree_control
	echo "+cpu" >$ROOT/churns/cgroup.subtree_control
	echo "50000 100000" >$ROOT/nested/cpu.max
	echo "20000 50000" >$ROOT/nested/in/cpu.max
}

stress_on() {
	stress_groups
	stress_load
}

# A forker's turn takes 20 ms here (vmstress.c), under locks that others wait for: so side work has
# 10 %.
stress_load() {
	sched_ext_on --json --audit --gate 'cgroup:/main class=main headroom=20% latency=-10' --gate 'cgroup:/side class=side tolerance=10%' \
		--gate 'cgroup:/hard cap_hard=200‰ cap_scope=task' --gate 'cgroup:/soft cap_soft=100‰ cap_scope=process'
}

# stress_reload: out and in again. While it goes, nothing is done that no kernel stands (vmstress.c,
# torment).
stress_reload() {
	touch /tmp/calm /tmp/fair
	echo 0 >$ROOT/idle/cpu.idle
	until_true 200 sh -c "! [ -e /tmp/plugging ]" || fail "CPU 1 does not come or go"
	echo "out"
	sched_ext_off
	echo "in"
	rm -f /tmp/calm
	stress_load
	rm -f /tmp/fair
	echo "is in"
}

# torment_along SECONDS SEED: in the background, until torment_over.
torment_along() {
	rm -f /tmp/torment /tmp/plugging
	vmtool stress "$1" 28 "$2" $ROOT/churns $ROOT/idle $ROOT/quota $ROOT/main $ROOT/side $ROOT/hard $ROOT/soft $ROOT/nested/in $ROOT >/tmp/torment &
	TORMENT=$! TORMENT_S=$1
	until_true 200 grep -qs '^spawned' /tmp/torment || fail "the torment does not begin"
}

# Nobody waits for more than about 10 s, and the kernel ejects who lets a task wait for 30 s: only a
# host that stood for 15 s and more is an excuse.
stress_stands() {
	# Under the kernel's own scheduler nothing can be ejected.
	[ -n "${EXT:-}" ] || return 0
	[ "$(sched_ext_state)" = enabled ] && return
	_stood=$(stood 60)
	# A slow guest takes long to write the kernel's dump.
	until_true 200 sh -c "! [ -d /proc/$EXT ]" || true
	if [ "$_stood" -lt 15 ]; then
		grep -a -v '^{' /tmp/sched_ext | head -c 30000
		grep -a '^{' /tmp/sched_ext | tail -n 1 | head -c 10000
		dmesg | grep -i -A 8 sched_ext | tail -n 40
		dmesg | grep smpboot | tail -n 20
		fail "ejected: $(grep -ao 'was ejected.*' /tmp/sched_ext | tail -n 1); the host stood for $_stood s, as it says: $(tail -n 3 /tmp/heart | tr '\n' ';')"
	fi
	EJECTED=$((EJECTED + 1))
	wait $EXT || true
	stress_load
}

# What every CPU and task does, once, where the torment takes a minute longer than it was to.
torment_over() {
	_told=$(($(cut -d. -f1 /proc/uptime) + 60 + TORMENT_S))
	while alive $TORMENT; do
		sleep 1
		stress_stands
		[ "$(cut -d. -f1 /proc/uptime)" -gt $_told ] || continue
		_told=$((_told + 100000))
		for _key in 8 l w t; do echo $_key >/proc/sysrq-trigger; done
	done
	wait $TORMENT || fail "$(tail -n 1 /tmp/torment)"
	cat /tmp/torment
	stress_stands
}

# torment SECONDS SEED
torment() {
	torment_along "$@"
	torment_over
}

# nothing_miscounted: what run queues and the tree of weights count are the tasks that exist. A task
# that is counted for good stays so; while others wake up the figure differs for a moment.
nothing_miscounted() {
	until_true 15 sh -c '[ "$(tail -n 1 /tmp/sched_ext | sed -n "s/.*\"miscounted\":\([0-9]*\).*/\1/p")" = 0 ]' ||
		fail "miscounted: $(json_last miscounted)"
}

# hard_us: what the cap of the group `hard` was charged with, as shown last.
hard_us() { sched_ext_fields | awk -F: '/"hard_ppt":200/ { its = 1 } its && /"used_us"/ { us = $2 + 0; its = 0 } END { print us + 0 }'; }

# What a process ran by the kernel's clock, and by its cap's bucket: the same, within what one run
# and one interrupt are. A host that stands in the middle of an interrupt is in one of them only:
# then once more. From 7.0 on the kernel's clock is short of what tasks of sched_ext ran: there, the
# bucket has no less than the clock and no more than 200 permille of the time.
same_is_charged() {
	start hard vmtool burn
	for _turn in 1 2 3; do
		kill -STOP $STARTED
		sleep 2.5
		_ran=$(vmtool cpu $STARTED) _charged=$(hard_us) _from=$(uptime)
		kill -CONT $STARTED
		sleep 3
		kill -STOP $STARTED
		_until=$(uptime)
		sleep 2.5
		_ran=$((($(vmtool cpu $STARTED) - _ran) / 1000)) _charged=$(($(hard_us) - _charged))
		case $(uname -r) in
		[7-9].*) _most=$(awk -v a="$_from" -v b="$_until" 'BEGIN { print int((b - a) * 200000 + 50000) }') ;;
		*) _most=$((_ran + _ran / 50 + 5000)) ;;
		esac
		kill -CONT $STARTED
		echo "ran $_ran us, charged $_charged us of at most $_most"
		_agrees=0
		[ $_ran -lt $((_charged + _charged / 50 + 5000)) ] && [ $_charged -lt $_most ] && _agrees=1 && break
	done
	finish $STARTED
	[ $_agrees = 1 ] || fail "a process ran $_ran us and its cap was charged $_charged us, of at most $_most"
}
