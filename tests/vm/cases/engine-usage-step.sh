# what: without BPF, from group usage alone: a step of main is answered within 60 ms
# modes: precise
# needs: tidegate
# seconds: 30
mkdir -p /etc/tidegate
echo 'sense = "usage"' >/etc/tidegate/tidegate.toml
tidegate run --side --headroom 30% -- vmtool burn &
side=$!
gate_soon $side $SIDE
tidegate run --main -- vmtool step 10 40 5000 3 5 /tmp/step &
main=$!
gate_soon $main $MAIN
vmtool series 4.8 2000 $SIDE >/tmp/series
wait $main
took=$(reaction /tmp/series "$(cat /tmp/step)" 35 down)
[ -n "$took" ] || fail "side never gave way after main's step"
measure main_10_to_40 "$took" ms
within "time to give way, in ms" "$took" 0 60
