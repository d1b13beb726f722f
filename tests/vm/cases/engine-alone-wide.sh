# what: side work alone on two, four and eight idle CPUs gets what is due, from one hog to one more than there are CPUs
# modes: wide
# tier: long
# seconds: 400
. /vm/alone.sh
cpus 4
hogs_get_their_due bpf 0 1
hogs_get_their_due bpf 20 2
hogs_get_their_due usage 20 3
cpus 4 8 12
hogs_get_their_due bpf 0 4
# The agent is emulated at a fraction of a CPU's speed: its work each second is a burst of main of
# 10 ms and more, which is cut for and taken back.
hogs_get_their_due bpf 20 5 93
hogs_get_their_due usage 0 1
cpus 2 4 6 8 10 12 14
hogs_get_their_due bpf 0 9
hogs_get_their_due bpf 20 1
hogs_get_their_due bpf 20 8
