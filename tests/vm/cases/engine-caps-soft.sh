# what: a soft cap of 200 permille: alone it takes all, beside others no more than its cap, and it yields within 20 ms; 0 takes nothing
# modes: precise
# tier: long 7.3
# seconds: 180
group main
soft=tidegate-soft=job
tidegate run --cap-soft 200‰ --name job -- vmtool burn &
job=$!
until_true 20 [ -d $ROOT/$soft ] || fail "no group at the top"
seen 10 $soft
measure soft_alone "$(of $soft)" %
within "alone" "$(of $soft)" 97 100
inside main vmtool step 0 100 5000 3 4 /tmp/step &
step=$!
vmtool series 7 2000 $soft >/tmp/series
took=$(reaction /tmp/series "$(cat /tmp/step)" 30 down)
measure soft_yields_after "$took" ms
within "yielding, in ms" "$took" 0 20
wait $step || true
inside main vmtool burn &
hog=$!
seen 10 $soft main
measure soft_beside_a_hog "$(of $soft)" %
within "beside a hog" "$(of $soft)" 18.5 20.5
tidegate status gate:job

# As many as wait, and none of them with a weight that it had before (from 7.3 on the kernel leaves
# a waiting task its own).
finish $job
until_true 10 sh -c "! [ -d $ROOT/$soft ]" || fail "the gate's group stays"
tidegate run --cap-soft 200‰ --name job -- vmtool threads 40 &
job=$!
until_true 20 [ -d $ROOT/$soft ] || fail "no group at the top"
sleep 1
seen 10 $soft main
measure soft_of_40_beside_a_hog "$(of $soft)" %
within "40 tasks beside a hog" "$(of $soft)" 18.5 20.5

tidegate set gate:job cap_soft=0
seen 10 $soft main
measure soft_0_beside_a_hog "$(of $soft)" %
within "in the background for good" "$(of $soft)" 0 1
same "the limit" "$(tidegate explain gate:job --json | json limit)" soft_cap
echo 1 >$ROOT/main/cgroup.kill
wait $hog || true
sleep 1
seen 4 $soft
within "and alone again" "$(of $soft)" 95 100
gone_soon $job
