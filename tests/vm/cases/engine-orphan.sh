# what: side ends while no agent lives: the next start and end leave nothing behind
# modes: smp
# seconds: 60
run_gated side --side --headroom 20% -- vmtool burn
until_true 5 sh -c 'tidegate status >/dev/null' || fail "no agent answers"
# A guardian that sees its agent die before it is killed itself starts another: again, until nobody
# is left.
for _ in 1 2 3 4 5; do
	# Some may have ended since they were listed.
	kill -9 $(ours) 2>/dev/null || true
	sleep 0.2
	[ -n "$(ours)" ] || break
done
same "processes of ours" "$(ours)" ""
finish $side
held || fail "the side root changed without an agent"
tidegate run --side --headroom 20% -- true
gone_soon
