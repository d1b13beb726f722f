# what: two halves of one CPU: a loop gets in later periods what it missed while a task that rests ran
# modes: precise
# tier: long
# seconds: 60
tidegate run --quota 50ms -- vmtool burn &
loop=$!
tidegate run --quota 50ms -- vmtool duty 45 20000 &
rests=$!
gate_soon $loop $MAIN
gate_soon $rests $MAIN
loop_group=$(cgroup_of $loop | cut -c 2-)
rests_group=$(cgroup_of $rests | cut -c 2-)
seen 10 "$loop_group" "$rests_group"
measure half_of_a_loop "$(of "$loop_group")" %
measure half_of_what_rests "$(of "$rests_group")" %
within "half a CPU of a loop" "$(of "$loop_group")" 49.5 50.1
within "half a CPU of what wants 45 %" "$(of "$rests_group")" 44.5 45.5
gone_soon $loop $rests
