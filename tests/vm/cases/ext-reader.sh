# what: tidegate ext ends in order once nobody reads what it prints, as JSON or as text, and its JSON is an object a line
# modes: precise
# kernels: 6.18 7.3
# tier: long 7.3
# needs: tidegate
# seconds: 60

# left_by LINES ARGUMENTS: its reader goes after so many lines; what that has read is in /tmp/read.
left_by() {
	_lines=$1
	shift
	{
		code=0
		tidegate ext "$@" 2>/tmp/said || code=$?
		echo $code >/tmp/code
	} | head -n "$_lines" >/tmp/read
	same "the exit code of tidegate ext $*, whose reader left" "$(cat /tmp/code)" 0
	same "what it said" "$(cat /tmp/said)" ""
	same "the state of sched_ext" "$(ext_state)" disabled
	same "lines" "$(wc -l </tmp/read)" "$_lines"
}
left_by 2 --json
same "lines that are whole objects" "$(grep -c '^{"uptime_s":.*"enabled".*}$' /tmp/read)" 2
# A text that has no second line until the end.
left_by 1
grep -q "^sched_ext: enabled" /tmp/read || fail "it said '$(cat /tmp/read)'"
