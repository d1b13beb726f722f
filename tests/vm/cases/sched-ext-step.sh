# what: main steps up under the scheduler: side is within 5 points of its new allowance in 2 ms; and comes back
# modes: precise
# tier: long
# seconds: 90
group main side eye
# The reader is to read while main runs, too.
sched_ext_on --gate 'cgroup:/eye latency=-20' --gate 'cgroup:/main class=main headroom=30%' --gate 'cgroup:/side class=side'
into side vmtool count /tmp/turns &
until_true 10 [ -s /tmp/turns ]

# steps FROM TO LIMIT WAY: what side work did, every millisecond.
steps() {
	into main vmtool step $1 $2 5000 3 5 /tmp/step &
	main=$!
	inside eye vmtool series 4.8 1000 /tmp/turns >/tmp/series
	wait $main
	took=$(reaction /tmp/series "$(cat /tmp/step)" $3 $4)
	[ -n "$took" ] || fail "side never came $4 to $3 % after main went from $1 to $2 %"
	measure "main_$1_to_$2" "$took" ms
}

sleep 1
gives_way 10 40 35 30 60 2 20
gives_way 20 60 15 10 40 2 20
# Little is free then: a turn of 1 ms that was open, and one look later, are 10 ms of all of it.
gives_way 10 80 6 1 20 2 15
steps 80 10 55 up
within "time to come back, main 80 to 10 %, in ms" "$took" 0 500
sched_ext_is_on
