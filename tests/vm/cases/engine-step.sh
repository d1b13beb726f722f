# what: main steps up: side is within 5 points of its new allowance in 20 ms; and comes back after a step down
# modes: precise
# tier: long 7.3
# seconds: 60

# steps FROM TO LIMIT WAY
steps() {
	run_gated main --main -- vmtool step $1 $2 5000 3 5 /tmp/step
	vmtool series 4.8 2000 $SIDE >/tmp/series
	wait $main
	took=$(reaction /tmp/series "$(cat /tmp/step)" $3 $4)
	[ -n "$took" ] || fail "side never came $4 to $3 % after main went from $1 to $2 %"
	measure "main_$1_to_$2" "$took" ms
}

run_gated side --side --headroom 30% -- vmtool burn
gives_way 10 40 35 30 60 20 50
gives_way 20 60 15 10 40 20 60
gives_way 10 80 6 1 20 20 50
steps 80 10 55 up
within "time to come back, main 80 to 10 %, in ms" "$took" 0 1500
