# what: side ends while no owner lives: the next start and end leave nothing behind
# modes: smp
# needs: tidegate
# seconds: 60
tidegate run --side -- vmtool burn &
side=$!
gate_soon $side $SIDE
until_true 5 sh -c 'tidegate status >/dev/null' || fail "no owner answers"
kill -9 $(ours)
sleep 0.2
same "processes of ours" "$(ours)" ""
finish $side
held || fail "the side root changed without an owner"
tidegate run --side -- true
gone_soon
