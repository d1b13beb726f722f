# what: a task whose waker is about to sleep displaces no equal; one that an interrupt or an ordinary wakeup wakes does
# modes: wide
# tier: long
# seconds: 60
group main
cpus 2
sched_ext_on
start main taskset 4 vmtool burn

# The waker has had 1 ms of its slice of 1.4 ms, of which half is safe.
late() {
	SEEN=$(inside main vmtool woken $1 100 $2)
	echo "$1, $2 us more: $SEEN"
	measure $1_$2 "$(of mean_us)" us
}
late event 3000
within "an eventfd's reader beside its writer, us" "$(of mean_us)" 0 100
# The loopback delivers in a softirq, which tells nothing of the task that it runs on.
late udp 3000
within "a datagram's reader beside its sender, us" "$(of mean_us)" 0 100
# To the end of a slice.
late pipe 3000
within "a pipe's reader beside a writer that goes on, us" "$(of mean_us)" 150 1000
late pipe 0
within "a pipe's reader after a writer that sleeps, us" "$(of mean_us)" 0 100
sched_ext_off
