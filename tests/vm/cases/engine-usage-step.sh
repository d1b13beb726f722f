# what: without BPF, from group usage and schedstat: on one CPU a step of main is answered within 0.6 s
# modes: precise
# tier: long 7.3
# seconds: 30
mkdir -p /etc/tidegate
echo 'sense = "usage"' >/etc/tidegate/tidegate.toml
run_gated side --side --headroom 30% -- vmtool burn
run_gated main --main -- vmtool step 10 40 5000 3 5 /tmp/step
vmtool series 4.8 2000 $SIDE >/tmp/series
wait $main
took=$(reaction /tmp/series "$(cat /tmp/step)" 35 down)
[ -n "$took" ] || fail "side never gave way after main's step"
measure main_10_to_40 "$took" ms
# Version 2 has no usage file for the whole machine: busy is read from /proc/stat in steps of 10 ms.
# On one CPU that is 20 points of a 50 ms window, beside the tick's 8: a step of 30 points is no
# evidence yet, and the slow mean answers.
within "time to give way, in ms" "$took" 0 600
