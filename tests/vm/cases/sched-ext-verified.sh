# what: the verifier accepts every callback for 64 CPUs with threads and caches, well below its limit, and doctor verifies the same
# modes: precise
# tier: long
# seconds: 90

# The verifier gives up at a million instructions.
VERIFIED_MAX=250000
scheduler --verify 64,4 >/tmp/wide
sort -k 2 -n -r /tmp/wide
[ "$(wc -l </tmp/wide)" -ge 19 ] || fail "$(wc -l </tmp/wide) programs were verified"
most=$(awk '$2 > most { most = $2 } END { print most }' /tmp/wide)
measure verified_most "$most" instructions
[ "$most" -le $VERIFIED_MAX ] || fail "the verifier walks $most instructions of a callback, more than $VERIFIED_MAX"
tidegate doctor --verify-sched-ext --json >/tmp/own
same "programs that doctor verifies" "$(grep -c verified_insns /tmp/own)" "$(wc -l </tmp/wide)"
