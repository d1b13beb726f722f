# what: two side gates share one allowance, the heavier with more of it
# modes: precise
tidegate run --side --headroom 30% --weight 100 -- vmtool burn &
light=$!
tidegate run --side --weight 300 -- vmtool burn &
heavy=$!
gate_soon $light $SIDE
gate_soon $heavy $SIDE
sleep 3
light_group=$(cgroup_of $light | cut -c 2-)
heavy_group=$(cgroup_of $heavy | cut -c 2-)
seen 10 "$light_group" "$heavy_group"
measure weight_100 "$(of "$light_group")" %
measure weight_300 "$(of "$heavy_group")" %
within "idle" "$(of idle)" 29 31
# At the short periods of a quick loop the kernel does not keep weights below a quota
# (kernel-figures), so 17.5 % cannot be asked for; what is: the heavier has more, and the lighter is
# not starved.
within "weight 100 beside 300, of 70 %" "$(of "$light_group")" 8 34
gone_soon $light $heavy
