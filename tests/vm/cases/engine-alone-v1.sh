# what: side work alone on an idle machine gets what is due on cgroup v1, with BPF and with usage files
# modes: precise
# tier: long
# seconds: 200
. /vm/alone.sh
v1_begin
hogs_get_their_due bpf 0 1
hogs_get_their_due bpf 20 2
hogs_get_their_due usage 0 1
hogs_get_their_due usage 20 2
v1_end
