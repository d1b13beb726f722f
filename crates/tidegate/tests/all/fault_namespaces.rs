//! Faults that need a namespace of their own: numbers of processes that are used again, a full run
//! directory, a cgroup tree that cannot be written, a cgroup namespace, and a user without rights.
//! Each is a shell script in `unshare` (util-linux).

use std::process::{Command, Output};

use crate::common::{Instance, describe, ends_with, or_skip, stderr};
use crate::support_fault::{long, tell};

/// What every script has: the command, the instance's group, and a way to fail.
const HEAD: &str = r#"
set -u
fail() { echo "FAIL: $*" >&2; exit 1; }
cpu=/sys/fs/cgroup; [ ! -e /sys/fs/cgroup/cpu ] || cpu=/sys/fs/cgroup/cpu
side=$cpu/$TIDEGATE_PREFIX-side
# A quota stands, and the idle class too, unless the quota is the tolerance (1 %): side work that
# got no CPU for a second is let out.
held() {
	if [ -e $side/cpu.max ]; then read quota period <$side/cpu.max
	else quota=$(cat $side/cpu.cfs_quota_us) period=$(cat $side/cpu.cfs_period_us); fi
	case $quota in max | -1) return 1 ;; esac
	[ "$(cat $side/cpu.idle)" = 1 ] || [ $((quota * 99)) -le $((period * $(nproc))) ]
}
"#;

/// Runs the script as root in the namespaces that the flags ask for.
fn inside(instance: &Instance, flags: &[&str], script: &str, rounds: u64) -> Output {
    let mut command = instance.on(Command::new("timeout"));
    command.args(["-k", "5", "120", "unshare"]).args(flags);
    command.args(["sh", "-c", &format!("{HEAD}{script}")]);
    command
        .env("T", instance.binary())
        .env("DIR", instance.path())
        .env("ROUNDS", rounds.to_string());
    let output = command.current_dir("/").output().unwrap();
    assert!(output.status.success(), "{}", describe(&output));
    output
}

/// A number that is another process's by now: that one is left where it is, by the agent, by
/// `unset` and by `repair`.
#[test]
fn a_number_that_is_used_again_is_another_process() {
    const SCRIPT: &str = r#"
$T run --side --headroom 20% --quiet --name keep -- sleep 1000 & keep=$!
sleep 1
round=0
while [ $round -lt $ROUNDS ]; do
	round=$((round + 1))
	sleep 1000 & first=$!
	home=$(cat /proc/$first/cgroup)
	$T set pid:$first class=side >/dev/null || fail "set pid:$first"
	[ "$(cat /proc/$first/cgroup)" != "$home" ] || fail "it was not moved"
	kill -9 $first; wait $first 2>/dev/null
	echo $((first - 1)) >/proc/sys/kernel/ns_last_pid
	sleep 1000 & second=$!
	[ $second = $first ] || { kill $second; continue; }
	[ $((round % 2)) = 0 ] || sleep 3
	[ $((round % 3)) != 0 ] || $T unset pid:$first >/dev/null 2>&1
	[ "$(cat /proc/$second/cgroup)" = "$home" ] || fail "the later process was moved: $(cat /proc/$second/cgroup)"
	echo again
	kill $second
done
kill $keep
$T agent stop >/dev/null
sleep 1.2
$T agent repair >/dev/null
"#;
    let instance = or_skip!(Instance::new("reuse"));
    let rounds = if long() { 60 } else { 6 };
    let flags = ["--pid", "--fork", "--mount-proc"];
    let output = inside(&instance, &flags, SCRIPT, rounds);
    let again = crate::common::stdout(&output).lines().count() as u64;
    assert!(again >= rounds / 2, "{}", describe(&output));
    tell("numbers of processes used again", again);
}

/// Without room nothing is begun that could not be written down, what stands stays, and with room
/// all goes on.
#[test]
fn a_full_run_directory_begins_nothing() {
    const SCRIPT: &str = r#"
mkdir $DIR/small && mount -t tmpfs -o size=128k none $DIR/small || exit 1
export TIDEGATE_RUN_DIR=$DIR/small/run
round=0
while [ $round -lt $ROUNDS ]; do
	round=$((round + 1))
	# More room each time: each of the agent's files is the one that does not fit any more.
	dd if=/dev/zero of=$DIR/small/fill bs=4k 2>/dev/null
	truncate -s -$((round % 12 * 4096)) $DIR/small/fill
	$T run --side --headroom 20% --quiet --name job -- sleep 1000 2>$DIR/said & job=$!
	sleep 0.7
	if kill -0 $job 2>/dev/null; then
		grep -q $TIDEGATE_PREFIX-side/job /proc/$job/cgroup && ! held && fail "round $round: side is not held"
		dd if=/dev/zero of=$DIR/small/more bs=4k 2>/dev/null
		sleep 1000 & late=$!
		home=$(cat /proc/$late/cgroup)
		$T set pid:$late class=side >/dev/null 2>$DIR/said
		if [ $? != 0 ]; then
			grep -q -i "space" $DIR/said || fail "round $round: $(cat $DIR/said)"
			[ "$(cat /proc/$late/cgroup)" = "$home" ] || fail "round $round: half moved"
		fi
		held || fail "round $round: side is not held in a full directory"
		rm -f $DIR/small/more $DIR/small/fill
		$T set pid:$late class=side >/dev/null || fail "round $round: with room again"
		$T unset pid:$late >/dev/null || fail "round $round: unset"
		[ "$(cat /proc/$late/cgroup)" = "$home" ] || fail "round $round: not back"
		kill $late $job
	else
		grep -q -i "space" $DIR/said || fail "round $round: $(cat $DIR/said)"
	fi
	rm -f $DIR/small/more $DIR/small/fill
	$T agent stop >/dev/null 2>&1
	for try in 1 2 3 4 5 6 7 8 9 10; do sleep 0.3; $T agent repair >/dev/null 2>&1 && [ ! -e $side ] && break; done
	[ ! -e $side ] || fail "round $round: $side stays"
done
"#;
    let instance = or_skip!(Instance::new("full"));
    let rounds = if long() { 48 } else { 8 };
    inside(&instance, &["--mount"], SCRIPT, rounds);
    tell("full run directories", rounds);
}

/// A tree that becomes read-only under the agent: what stands stays and is told of; writable again,
/// all goes on.
#[test]
fn a_read_only_cgroup_tree_is_told_of() {
    const SCRIPT: &str = r#"
$T run --side --headroom 20% --quiet --name job -- sleep 1000 & job=$!
sleep 1
held || fail "side is not held"
round=0
while [ $round -lt $ROUNDS ]; do
	round=$((round + 1))
	mount -o remount,bind,ro $cpu || exit 1
	$T run --side -- true 2>$DIR/said && fail "a gate was made in a read-only tree"
	grep -q -i "read-only" $DIR/said || fail "$(cat $DIR/said)"
	$T run --side --or-bare --quiet -- true 2>/dev/null || fail "or-bare"
	sleep 1000 & late=$!
	$T set pid:$late class=side 2>$DIR/said && fail "a process was moved in a read-only tree"
	grep -q -i "read-only" $DIR/said || fail "$(cat $DIR/said)"
	held || fail "side is not held while read-only"
	mount -o remount,bind,rw $cpu || exit 1
	$T run --side --quiet -- true || fail "writable again"
	kill $late
done
kill $job
$T agent stop >/dev/null 2>&1
for try in 1 2 3 4 5 6 7 8 9 10; do sleep 0.3; $T agent repair >/dev/null 2>&1 && [ ! -e $side ] && break; done
"#;
    let instance = or_skip!(Instance::new("readonly"));
    let rounds = if long() { 20 } else { 2 };
    inside(&instance, &["--mount"], SCRIPT, rounds);
    tell("read-only cgroup trees", rounds * 4);
}

/// From a cgroup namespace, what lies outside has no name: it is refused by name, and what is
/// refused stays.
#[test]
fn what_has_no_name_in_a_cgroup_namespace_is_refused() {
    const SCRIPT: &str = r#"
box=$cpu/other-$TIDEGATE_PREFIX
mkdir $box && echo $$ >$box/cgroup.procs
sleep 1000 & outside=$!
echo $outside >$cpu/cgroup.procs
home=$(cat /proc/$outside/cgroup)
unshare -C sh -c '
	$T run --side --headroom 20% --quiet --name job -- sleep 1000 & job=$!
	sleep 1
	kill -0 $job || exit 1
	$T set pid:'$outside' class=side 2>$DIR/said
	echo $? >$DIR/answer
	kill $job'
if [ "$(cat $DIR/answer)" != 0 ]; then grep -q "cannot be named" $DIR/said || fail "$(cat $DIR/said)"; fi
$T unset pid:$outside >/dev/null 2>&1
$T agent stop >/dev/null 2>&1
echo $$ >$cpu/cgroup.procs
for try in 1 2 3 4 5 6 7 8 9 10; do sleep 0.3; $T agent repair >/dev/null 2>&1 && [ ! -e $side ] && break; done
[ "$(cat /proc/$outside/cgroup)" = "$home" ] || fail "the process outside is in $(cat /proc/$outside/cgroup)"
kill $outside
rmdir $box
"#;
    let instance = or_skip!(Instance::new("cgns"));
    inside(&instance, &["--mount"], SCRIPT, 1);
    tell("cgroup namespaces", 1);
}

#[test]
fn a_second_agent_with_another_run_directory_leaves_the_tree_to_the_first() {
    let instance = or_skip!(Instance::new("tree"));
    let _first = instance.sleeper("first");
    let other = instance.path().join("other");
    let mut second = instance.tidegate(&["run", "--side", "true"]);
    let output = second.env("TIDEGATE_RUN_DIR", &other).output().unwrap();
    let said = ends_with(&output, 125);
    assert!(
        said.contains("another agent, with a run directory of its own, has it"),
        "{said}"
    );
    let gates = instance.json(&["status"])["gates"].clone();
    assert_eq!(gates.as_array().unwrap().len(), 1, "{gates}");
}

/// Whatever a user without rights asks beyond tightening what is theirs is refused, by name, and
/// changes nothing.
#[test]
fn a_user_without_rights_changes_nothing() {
    let instance = or_skip!(Instance::new("nobody"));
    let keep = instance.sleeper("keep");
    let target = format!("pid:{}", keep.pid());
    let before = instance.json(&["status"])["gates"][0]["cgroup"].clone();
    let asked: [&[&str]; 12] = [
        &["set", "pid:1", "class=side"],
        &["set", &target, "headroom=90%"],
        &["set", "gate:keep", "weight=1"],
        &["set", "gate:keep", "class=main"],
        &["set", "cgroup:/", "class=side"],
        &["unset", "gate:keep"],
        &["unset", &target],
        &["agent", "stop"],
        &["agent", "repair"],
        &["run", "--main", "--", "true"],
        &["run", "--side", "--weight", "10000", "--", "true"],
        &["run", "--side", "--headroom", "99%", "--", "true"],
    ];
    for words in asked {
        let output = instance.by_nobody(words).output().unwrap();
        assert!(!output.status.success(), "{words:?}: {}", describe(&output));
        let said = stderr(&output);
        assert!(said.starts_with("tidegate: "), "{words:?}: {said}");
        assert_eq!(
            instance.json(&["status"])["gates"][0]["cgroup"],
            before,
            "{words:?}"
        );
    }
    tell("asked without rights", asked.len() as u64);
    drop(keep);
}
