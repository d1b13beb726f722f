# what: tidegate ext ends in order once nobody reads what it prints, as JSON or as text, or its terminal is gone; its JSON is an object a line, and an end that is found only as it leaves is told, too
# modes: precise
# kernels: 6.18 7.3
# tier: long 7.3
# needs: tidegate
# seconds: 90

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
ext_writes() { grep -q pipe_write /proc/$EXT/wchan /proc/$EXT/stack 2>/dev/null; }
left_by 2 --json
same "lines that are whole objects" "$(grep -c '^{"uptime_s":.*"enabled".*}$' /tmp/read)" 2
# A text that has no second line until the end.
left_by 1
grep -q "^sched_ext: enabled" /tmp/read || fail "it said '$(cat /tmp/read)'"

# Its window is closed: it is told so by a signal, and a write by an error of input and output.
code=0
vmtool terminal 3 tidegate ext >/tmp/shown 2>/tmp/said || code=$?
same "the exit code of tidegate ext whose terminal is gone" "$code" 0
same "what it said" "$(cat /tmp/said)" ""
same "the state of sched_ext" "$(ext_state)" disabled
within "bytes of its table" "$(sed -n 's/shown=//p' /tmp/shown)" 500 1000000

# Between its last look and its leaving it is held up in writing, for the pipe is full of zeros.
mkfifo /tmp/pipe
exec 9<>/tmp/pipe
dd if=/dev/zero of=/tmp/pipe bs=65536 count=1 2>/dev/null
tidegate ext --json --seconds 1 >/tmp/pipe 2>/tmp/said 9<&- &
EXT=$!
until_true 20 ext_writes || fail "it is not held up: $(cat /proc/$EXT/wchan)"
echo S >/proc/sysrq-trigger
sleep 2
same "the state of sched_ext" "$(ext_state)" disabled
cat <&9 >/tmp/read &
READER=$!
code=0
wait $EXT || code=$?
sleep 1
finish $READER
exec 9<&-
same "the exit code of one that was ejected" "$code" 4
tr -d '\000' </tmp/read >/tmp/lines
same "its lines" "$(sed 's/.*"state":"\([a-z]*\)".*/\1/' /tmp/lines | tr '\n' ' ')" "enabled ejected "
grep -q '"ended":{"kind":67' /tmp/lines || fail "the cause is not told: $(tail -n 1 /tmp/lines | head -c 300)"
