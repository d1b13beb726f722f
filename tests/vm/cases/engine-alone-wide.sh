# what: side work alone on two and four idle CPUs gets what is due, from one hog to one more than there are CPUs
# modes: wide
# kernels: 6.18 7.3
# needs: tidegate
# tier: long
# seconds: 200
. /vm/alone.sh
cpus 4
hogs_get_their_due bpf 0 1
hogs_get_their_due bpf 20 2
hogs_get_their_due usage 20 3
cpus 4 8 12
hogs_get_their_due bpf 0 4
# The agent is emulated at a fraction of a CPU's speed: its work each second is a burst of main of 10 ms and more, which is cut
# for and taken back.
hogs_get_their_due bpf 20 5 93
hogs_get_their_due usage 0 1
