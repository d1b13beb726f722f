# what: quotas and hard caps of their own hold to a thousandth over 10 s, in any class, nested and beside a moving quota
# modes: precise
# tier: long 7.3
# seconds: 110
tidegate run --quota 30ms --period 100ms -- vmtool burn &
quota=$!
tidegate run --main --headroom 0% --cap 200‰ -- vmtool burn &
cap=$!
tidegate run --cap 45‰ -- vmtool burn &
small=$!
gate_soon $quota $MAIN
gate_soon $cap $MAIN
gate_soon $small $MAIN
quota_group=$(cgroup_of $quota | cut -c 2-)
cap_group=$(cgroup_of $cap | cut -c 2-)
small_group=$(cgroup_of $small | cut -c 2-)
seen 10 "$quota_group" "$cap_group" "$small_group"
measure quota_300_permille "$(of "$quota_group")" %
measure cap_200_permille "$(of "$cap_group")" %
measure cap_45_permille "$(of "$small_group")" %
within "quota of 30 ms in 100 ms" "$(of "$quota_group")" 29.9 30.1
within "cap of 200 permille" "$(of "$cap_group")" 19.9 20.1
within "cap of 45 permille" "$(of "$small_group")" 4.4 4.6
same "counts are the kernel's" "$(tidegate status "pid:$quota" --json | json nr_periods | grep -c '[1-9]')" 1
tidegate explain "pid:$cap" | grep -q "cap_hard" || fail "explain does not name the cap"
# A cap of a tenth within: both hold.
tidegate set "pid:$quota" cap_hard=100‰
seen 4 "$quota_group"
measure quota_within_cap_100_permille "$(of "$quota_group")" %
within "quota of 300 within a cap of 100 permille" "$(of "$quota_group")" 9.9 10.1
gone_soon $quota $cap $small

# A group that is there, in a parent that is tighter: the least holds, and is named.
group web
echo "+cpu" >$ROOT/web/cgroup.subtree_control
mkdir $ROOT/web/app
echo "10000 100000" >$ROOT/web/cpu.max
inside web/app vmtool burn &
app=$!
tidegate set cgroup:/web/app class=main quota=40ms
seen 3 web/app
measure quota_40_in_a_parent_of_10 "$(of web/app)" %
within "use in a parent of 10 %" "$(of web/app)" 9.8 10.3
tidegate explain cgroup:/web/app | grep -q "parent" || fail "the parent is not named: $(tidegate explain cgroup:/web/app)"
tidegate unset cgroup:/web/app
same "quota afterwards" "$(cat $ROOT/web/app/cpu.max)" "max 100000"
# A main that its quota makes pulse would have side work cut at each pulse.
kill $(cat $ROOT/web/app/cgroup.procs)
gone_soon $app

# Side work: its own cap is the lower one, then the allowance is.
run_gated side --side --headroom 30% --cap 250‰ -- vmtool burn
group_of_side=$(cgroup_of $side | cut -c 2-)
sleep 3
seen 5 "$group_of_side"
measure side_cap_250_permille "$(of "$group_of_side")" %
within "side work under a cap of 250 permille" "$(of "$group_of_side")" 24.5 25.2
gone_soon $side
