# what: the scheduler is ejected by sysrq-S and by its agent's death: what is mirrored holds throughout, status says why, it is loaded again
# modes: precise
# kernels: 6.18 7.3
# needs: tidegate
# seconds: 300
eject_begin
eject_work
ejected sysrq by_sysrq
told sysrq
tidegate status --json | json last_reason
ext_again
told_on() { tidegate status --json | json on | grep -q true; }
sleep 2
told_on || fail "status does not say that ext is on again"
within "side work under it" "$(seen 3 /tmp/turns >/dev/null; of /tmp/turns)" 0 1.5

ejected death by_kill
wait $AGENT || true
measure ejections $EJECTED faults
tidegate repair
quota_stands || fail "repair lifted side work's limits while it runs"
finish $HOG $TURNS $CAPPED
tidegate repair
until_true 10 gone || fail "left behind: $(ls -d $ROOT/tidegate-* 2>/dev/null) $(ours)"
