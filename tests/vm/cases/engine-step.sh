# what: main steps up: side is within 5 points of its new allowance in 20 ms; and comes back after a step down
# modes: precise
# needs: tidegate
# seconds: 60

# reaction FILE STEP_NS LIMIT_PERCENT WAY: ms from the step to the first moment after which the next 100 ms of side
# stay below the limit (or above it, for a step down).
reaction() {
	awk -v t0="$2" -v limit="$3" -v way="$4" '
		{ t[NR] = $1 / 1e6; u[NR] = $2 / 1e3 }
		END {
			for (i = 1; i < NR; i++) {
				if (t[i] < t0 / 1e6) continue
				for (j = i; j < NR && t[j] - t[i] < 100;) j++
				if (j >= NR) exit
				rate = 100 * (u[j] - u[i]) / (t[j] - t[i])
				if (way == "down" ? rate <= limit : rate >= limit) { printf "%.1f", t[i] - t0 / 1e6; exit }
			}
		}' "$1"
}

# steps FROM TO LIMIT WAY
steps() {
	tidegate run --main -- vmtool step $1 $2 5000 3 5 /tmp/step &
	main=$!
	gate_soon $main $MAIN
	vmtool series 4.8 1000 $SIDE >/tmp/series
	wait $main
	took=$(reaction /tmp/series "$(cat /tmp/step)" $3 $4)
	[ -n "$took" ] || fail "side never came $4 to $3 % after main went from $1 to $2 %"
	measure "main_$1_to_$2" "$took" ms
}

tidegate run --side --headroom 30% -- vmtool burn &
side=$!
gate_soon $side $SIDE
steps 10 40 35 down
within "time to give way, main 10 to 40 %, in ms" "$took" 0 20
steps 10 80 6 down
within "time to give way, main 10 to 80 %, in ms" "$took" 0 20
steps 80 10 55 up
within "time to come back, main 80 to 10 %, in ms" "$took" 0 1500
