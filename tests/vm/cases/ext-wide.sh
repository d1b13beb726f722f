# what: headroom on two CPUs under virtual time: side work alone has all but the idle asked for
# modes: wide
# needs: tidegate
# tier: long
# seconds: 100
group side
cpus 4
ext_on --json --gate 'cgroup:/side class=side headroom=30%'
for i in 1 2 3 4 5 6; do
	into side vmtool burn &
done
seen 5 side test
measure idle "$(of idle)" %
within "idle with side work alone" "$(of idle)" 29.5 31.5
ext_is_on
ext_off
