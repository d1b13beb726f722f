# what: two busy threads of the kernel's own, pinned to a CPU, leave its share to a task pinned there
# modes: wide
# tier: long
# seconds: 60
cpus 2
vmtool merge 8 &
memory=$!
sleep 1
ksm=/sys/kernel/mm/ksm huge=/sys/kernel/mm/transparent_hugepage
echo always >$huge/enabled
kthreads="$(pidof ksmd) $(pidof khugepaged)"
for pid in $kthreads; do taskset -p 4 "$pid" >/dev/null; done
sched_ext_on
taskset 4 vmtool burn &
hog=$!
echo 100000 >$ksm/pages_to_scan
echo 0 >$ksm/sleep_millisecs
echo 1 >$ksm/run
echo 4096 >$huge/khugepaged/pages_to_scan
echo 0 >$huge/khugepaged/scan_sleep_millisecs
sleep 0.2
before=$(vmtool cpu $hog $kthreads)
sleep 2
printf '%s\n%s\n' "$before" "$(vmtool cpu $hog $kthreads)" |
	awk 'NR <= 3 { was[NR] = $1; next } { printf "%.1f ", ($1 - was[NR - 3]) / 2e7 } END { print "" }' >/tmp/shares
echo 0 >$ksm/run
echo 10000 >$huge/khugepaged/scan_sleep_millisecs
read -r hog_share ksm_share huge_share </tmp/shares
measure hog "$hog_share" percent
measure ksmd "$ksm_share" percent
measure khugepaged "$huge_share" percent
# Weights: 1024, nice 5 335, nice 19 15.
within "the share of a task beside two threads of the kernel's" "$hog_share" 70 79
within "the share of ksmd, of nice 5" "$ksm_share" 20 29
sched_ext_is_on
finish $hog $memory
sched_ext_off
