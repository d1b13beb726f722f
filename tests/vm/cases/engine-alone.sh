# what: side work alone on an idle machine gets what is due: one CPU or 1 − headroom, with BPF and with usage files, on v2
# modes: precise
# tier: long 7.3
# seconds: 200
. /vm/alone.sh
hogs_get_their_due bpf 0 1
hogs_get_their_due bpf 0 3
hogs_get_their_due bpf 20 1
hogs_get_their_due usage 20 2
