# what: what the sched_ext engine charges to gates is what their tasks ran, and its delays are those that tasks see
# modes: precise
# tier: long
# seconds: 120
group a b
echo +cpu >$ROOT/b/cgroup.subtree_control
group b/below b/own w
echo "30000 100000" >$ROOT/b/cpu.max
group s
sched_ext_on --json --gate cgroup:/a --gate 'cgroup:/b class=main' --gate 'cgroup:/b/own latency=5' --gate 'cgroup:/w latency=-5' \
	--gate 'cgroup:/s class=side headroom=0%'

# stat GROUP KEY: that figure of the group's gate, in the last statistics.
stat() {
	sched_ext_fields | awk -F: -v group="\"/$1\"" -v key="\"$2\"" '
		$1 == "\"group\"" { here = $2 == group; done = 0 }
		here && !done && $1 == key { value = $2; done = 1 }
		END { print value }'
}
used_ms() { echo "$(stat $1 main_ns) $(stat $1 side_ns) $(stat $1 background_ns)" | awk '{ printf "%.2f", ($1 + $2 + $3) / 1e6 }'; }

# A gate without terms; a quota, with work in a group without a gate of its own, and in one with.
start a vmtool count /tmp/a
a=$STARTED
start b/below vmtool count /tmp/b
b=$STARTED
start b/own vmtool count /tmp/own
own=$STARTED
sleep 1
WAKE=$(inside w vmtool wake 4 5000 500)
sleep 4
finish $a $b $own
# Side work, alone.
start s vmtool count /tmp/s
side=$STARTED
sleep 5
finish $side
# The last line of statistics has it all.
sleep 1.2
sched_ext_is_on
for name in a b own s; do
	gate=$name
	[ $name != own ] || gate=b/own
	# A turn of the counter is 10,000 no-operations and what goes round with them.
	ran_ms=$(od -A n -t u8 -N 8 /tmp/$name | awk '{ printf "%.2f", $1 * 0.01 }')
	charged_ms=$(used_ms $gate)
	measure ${name}_ran "$ran_ms" ms
	measure ${name}_charged "$charged_ms" ms
	# Interrupts count for whom they hit; beside side work the headroom's timer is one each
	# millisecond.
	# One that is parked and let go again has 7.3's 1.0101 to 1.0108.
	most=1.015
	[ $name != s ] || most=1.02
	within "what $gate is charged for, over what it ran" "$(awk -v c="$charged_ms" -v r="$ran_ms" 'BEGIN { print c / r }')" 0.99 $most
done
# The kernel's count, where it is right for sched_ext.
if [ "$(uname -r | cut -d. -f1)" = 6 ]; then
	for gate in a b w; do
		kernel_ms=$(usage $gate | awk '{ print $1 / 1000 }')
		charged_ms=$(used_ms $gate)
		[ $gate != b ] || charged_ms=$(awk -v a="$charged_ms" -v b="$(used_ms b/own)" 'BEGIN { print a + b }')
		measure ${gate}_kernel "$kernel_ms" ms
		measure ${gate}_charged_of_kernel "$charged_ms" ms
		# The kernel counts some 5 us of each switch: 1.1 % of who runs for half a millisecond at a time.
		least=0.99
		[ $gate != w ] || least=0.98
		within "what $gate is charged for, over the kernel's count" "$(awk -v c="$charged_ms" -v k="$kernel_ms" 'BEGIN { print c / k }')" $least 1.01
	done
fi
# Who exits is main work from then on.
within "main work in side's gate, ns" "$(stat s main_ns)" 0 1000000
within "throttled periods of /b" "$(stat b nr_throttled)" 10 100

# As the task sees them: its own way to the clock and the timer's are in there, too.
SEEN=$WAKE
echo "$WAKE; wakeups $(stat w wakeups), mean $(stat w mean_ns) ns, p50 $(stat w p50_ns) ns, p99 $(stat w p99_ns) ns"
measure wakeups "$(stat w wakeups)" times
measure delay_mean "$(stat w mean_ns)" ns
measure seen_mean "$(of mean_us)" us
measure delay_p99 "$(stat w p99_ns)" ns
measure seen_p99 "$(of p99_us)" us
within "wakeups counted beyond those made" "$(awk -v c="$(stat w wakeups)" -v n="$(of wakes)" 'BEGIN { print c - n }')" 0 40
