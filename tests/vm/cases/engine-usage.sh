# what: without BPF, from group usage and schedstat: idle within 1 point
# modes: precise
# tier: long
# seconds: 60
mkdir -p /etc/tidegate
echo 'sense = "usage"' >/etc/tidegate/tidegate.toml
run_gated side --side --headroom 30% -- vmtool burn
for load in 20 50; do
	tidegate run --main -- vmtool duty $load 10000 &
	main=$!
	sleep 3
	same "sensing" "$(tidegate status --json | json sensing)" usage
	seen 10 $MAIN $SIDE
	measure "idle_main_$load" "$(of idle)" %
	within "idle with main at $load %" "$(of idle)" 29 31
	finish $main
done
