//! Faults that the machine around an instance has: groups that come and go by the thousand, forks
//! without end, another program that writes the same knob, agents that start at once, real-time
//! threads, hostile names.
//!
//! `TIDEGATE_FAULTS=all cargo test -p tidegate --test all fault_machine:: -- --nocapture` goes on
//! for longer.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{
    Background, Instance, OtherGroup, cpu_mount, describe, or_skip, quota_file, stderr,
};
use crate::support_fault::{long, tell};
use crate::support_kill::processes::{agents, guardians, kill9};
use crate::support_kill::stage::{Stage, nothing_left, side_root};
use crate::support_kill::wait;

/// Rounds of a fault: few in a test, many in a soak.
fn rounds(few: u64, many: u64) -> u64 {
    if long() { many } else { few }
}

fn for_a_while() -> Duration {
    Duration::from_secs(rounds(3, 30))
}

/// Makes and removes groups in `dir` until told to stop; says how many.
fn churn(dir: &Path, stop: &AtomicBool) -> u64 {
    let mut made = 0;
    while !stop.load(Ordering::Relaxed) {
        let names: Vec<PathBuf> = (0..20)
            .map(|nth| dir.join(format!("churn-{nth}")))
            .collect();
        made += names
            .iter()
            .filter(|name| std::fs::create_dir(name).is_ok())
            .count() as u64;
        for name in &names {
            let _ = std::fs::remove_dir(name);
        }
    }
    made
}

/// Thousands of groups a second at the top, in a target and in a gate: nothing is missed and
/// nothing is mistaken.
#[test]
fn groups_come_and_go_around_and_inside() {
    let stage = or_skip!(Stage::new("churn"));
    let agent = stage.agent();
    let other = OtherGroup::of_side(&stage.instance);
    let target = other.target();
    let gate = side_root(&stage.instance).join("side");
    let stop = AtomicBool::new(false);
    let made = AtomicU64::new(0);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for dir in [cpu_mount().0, other.path.clone(), gate] {
            let (stop, made) = (&stop, &made);
            scope.spawn(move || made.fetch_add(churn(&dir, stop), Ordering::Relaxed));
        }
        while began.elapsed() < for_a_while() {
            stage.instance.ok(&["status"]);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let made = made.load(Ordering::Relaxed);
    let a_second = made as f64 / began.elapsed().as_secs_f64();
    eprintln!("churn: {made} groups, {a_second:.0} a second");
    tell("churn, thousands of groups", made / 1000);
    assert_eq!(stage.agent(), agent, "the agent stays");
    stage.check();
    stage.instance.ok(&["unset", &target]);
    // A target that vanishes under its gate ends it.
    for _ in 0..rounds(3, 30) {
        stage.instance.ok(&["set", &target, "class=side"]);
        std::fs::remove_dir(&other.path).unwrap();
        stage.wait_for_two_gates();
        std::fs::create_dir(&other.path).unwrap();
    }
    tell("targets that vanish", rounds(3, 30));
    drop(other);
    stage.check();
    stage.end();
}

/// Side work that forks as fast as it can is as limited as any, also while its agent is killed.
#[test]
fn a_fork_storm_stays_in_its_gate() {
    const STORM: &str =
        "storm() { while :; do (:) & (:) & wait; done; }; storm & storm & storm & storm";
    let mut stage = or_skip!(Stage::new("storm"));
    let storm = stage
        .instance
        .background(&["--side", "--name", "storm"], &["sh", "-c", STORM]);
    stage.instance.gate("storm");
    for _ in 0..rounds(2, 20) {
        std::thread::sleep(Duration::from_millis(800));
        let dead = stage.kill_agent();
        stage.next_agent(dead);
        stage.check();
    }
    let forks = std::fs::read_to_string("/proc/sys/kernel/ns_last_pid").unwrap_or_default();
    eprintln!("storm: last process number {}", forks.trim());
    tell("deaths in a fork storm", rounds(2, 20));
    drop(storm);
    stage.end();
}

/// Who writes the same knob again and again is reported, answered once, and then left alone.
#[test]
fn an_outside_writer_is_told_of_and_left_alone() {
    let instance = or_skip!(Instance::new("fight"));
    let other = OtherGroup::new(&instance);
    let target = other.target();
    let (file, theirs) = quota_file(&other.path, Some(70_000));
    for round in 0..rounds(1, 10) {
        // Below theirs: without a headroom the loop's quota is as high as theirs, and is theirs.
        instance.ok(&["set", &target, "class=side", "headroom=90%"]);
        let began = Instant::now();
        let mut writes = 0;
        while began.elapsed() < Duration::from_secs(4) {
            std::fs::write(&file, &theirs).unwrap();
            writes += 1;
            std::thread::sleep(Duration::from_millis(5));
        }
        tell("outside writes", writes);
        let alerts = || instance.json(&["status"])["alerts"].to_string();
        let left_alone = || alerts().contains("left alone");
        wait("the alert", Duration::from_secs(5), left_alone);
        std::thread::sleep(Duration::from_millis(1_500));
        let stands = std::fs::read_to_string(&file).unwrap();
        assert_eq!(stands.trim(), theirs, "round {round}: no second rewrite");
        // Set again, it is ours again; what another program wrote meanwhile is not: it stays when
        // the gate ends.
        instance.ok(&["unset", &target]);
        let stands = std::fs::read_to_string(&file).unwrap();
        assert_eq!(stands.trim(), theirs, "round {round}: theirs stays");
        std::fs::write(&file, quota_file(&other.path, None).1).unwrap();
    }
    let _ = instance.output(&["agent", "stop"]);
}

/// As kubelet replaces a pod's limit when it resizes the pod.
#[test]
fn a_limit_that_its_owner_replaces_is_what_is_put_back() {
    let instance = or_skip!(Instance::new("resize"));
    let other = OtherGroup::new(&instance);
    let target = other.target();
    let quota = |quota_us| quota_file(&other.path, Some(quota_us));
    let (file, first) = quota(90_000);
    std::fs::write(&file, first).unwrap();
    instance.ok(&["set", &target, "class=side", "headroom=30%"]);
    for quota_us in [70_000, 50_000] {
        let theirs = quota(quota_us).1;
        std::fs::write(&file, &theirs).unwrap();
        std::thread::sleep(Duration::from_secs(2));
        instance.ok(&["unset", &target]);
        let stands = std::fs::read_to_string(&file).unwrap();
        assert_eq!(stands.trim(), theirs);
        instance.ok(&["set", &target, "class=side", "headroom=30%"]);
    }
    instance.ok(&["unset", &target]);
    let _ = instance.output(&["agent", "stop"]);
}

/// Of many agents that start at once one comes to be, each time.
#[test]
fn of_agents_that_start_at_once_one_lives() {
    let instance = or_skip!(Instance::new("two"));
    let rounds = rounds(4, 40);
    for round in 0..rounds {
        let mut all: Vec<Child> = (0..6)
            .map(|_| {
                let mut agent = instance.tidegate(&["agent", "run"]);
                agent.stdin(Stdio::null()).stdout(Stdio::null());
                agent.stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        let mut running = 6;
        wait("one agent", Duration::from_secs(20), || {
            running = all
                .iter_mut()
                .filter_map(|one| one.try_wait().unwrap().is_none().then_some(()))
                .count();
            running == 1
        });
        let answers = || instance.output(&["status"]).status.success();
        wait("its answer", Duration::from_secs(10), answers);
        for one in &mut all {
            if one.try_wait().unwrap().is_none() {
                assert_eq!(
                    agents(instance.prefix()),
                    [one.id() as i32],
                    "round {round}"
                );
            }
        }
        instance.ok(&["agent", "stop"]);
        for one in all {
            let output = one.wait_with_output().unwrap();
            let said = stderr(&output);
            assert!(
                output.status.success() || said.contains("another agent runs"),
                "{said}"
            );
        }
    }
    tell("agents that start at once", rounds * 6);
    nothing_left(&instance);
}

/// A process with a real-time thread (another instance's agent has one) is refused where the kernel
/// refuses it, by its number, and all of its threads stay where they were.
#[test]
fn a_process_with_a_real_time_thread_is_never_half_moved() {
    let instance = or_skip!(Instance::new("rt"));
    let second = instance.beside("second");
    let keep = second.sleeper("keep");
    let pid = agents(second.prefix())[0];
    let places = || -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let cgroup = |path: PathBuf| std::fs::read_to_string(path.join("cgroup")).unwrap();
        tasks.map(|task| cgroup(task.unwrap().path())).collect()
    };
    let before = places();
    for _ in 0..rounds(3, 100) {
        let output = instance.output(&["set", &format!("pid:{pid}"), "class=side"]);
        if output.status.success() {
            // A kernel without RT_GROUP_SCHED takes it whole.
            assert!(places().iter().all(|place| *place == places()[0]));
            instance.ok(&["unset", &format!("pid:{pid}")]);
        } else {
            let said = stderr(&output);
            assert!(said.contains("real-time"), "{said}");
        }
        assert_eq!(places(), before);
    }
    tell("real-time threads in a target", rounds(3, 100));
    let _ = instance.output(&["agent", "stop"]);
    drop(keep);
}

/// Names that would lead elsewhere are refused, and nothing is made of them.
#[test]
fn hostile_names_lead_nowhere() {
    let instance = or_skip!(Instance::new("names"));
    let keep = instance.sleeper("keep");
    // Only ours: tests beside this one make theirs.
    let ours = || groups_below(&side_root(&instance));
    let before = ours();
    let long_name = "a".repeat(300);
    let up = format!("cgroup:/{}-side/../../etc", instance.prefix());
    let targets = [
        "cgroup:/..",
        "cgroup:/a/../../etc",
        &up,
        "cgroup:relative",
        "cgroup:",
        "cgroup:/a\nb",
        "cgroup:/\u{1}",
        "cgroup://",
        "pid:-1",
        "pid:0",
        "pid:1 2",
        "pid:99999999999999999999",
        "gate:../x",
        "unit:../x",
        "",
        "\u{feff}pid:1",
        &format!("cgroup:/{long_name}"),
    ];
    let names = [
        "../x",
        "a/b",
        "",
        ".",
        "..",
        "a\nb",
        "-x",
        "a b",
        &long_name,
        "\u{202e}x",
    ];
    for target in targets {
        let output = instance.output(&["set", target, "class=side"]);
        let said = stderr(&output);
        assert!(!output.status.success(), "{target:?}: {said}");
        assert!(said.starts_with("tidegate: "), "{target:?}: {said}");
    }
    for name in names {
        let name = format!("--name={name}");
        instance.fails(&["run", "--side", &name, "--", "true"], 125);
    }
    assert_eq!(ours(), before);
    tell("hostile names", (targets.len() + names.len()) as u64);
    a_group_without_a_text_name(&instance);
    drop(keep);
}

fn groups_below(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.map(|dir| 1 + groups_below(&dir.path())).sum()
}

/// A process in a group whose name is no text is refused or comes back to it; the group itself does
/// no harm.
fn a_group_without_a_text_name(instance: &Instance) {
    let mut name = format!("other-{}-", instance.prefix()).into_bytes();
    name.extend([0xff, b' ', 0xc3]);
    let dir = cpu_mount().0.join(std::ffi::OsStr::from_bytes(&name));
    std::fs::create_dir(&dir).unwrap();
    let process = Background::start(&["sleep", "1000"]);
    std::fs::write(dir.join("cgroup.procs"), process.pid().to_string()).unwrap();
    let raw = || std::fs::read(format!("/proc/{}/cgroup", process.pid())).unwrap();
    let before = raw();
    let target = format!("pid:{}", process.pid());
    let output = instance.output(&["set", &target, "class=side"]);
    if output.status.success() {
        instance.ok(&["unset", &target]);
    }
    assert_eq!(raw(), before, "{}", describe(&output));
    tell("groups without a text name", 1);
    drop(process);
    std::fs::remove_dir(&dir).unwrap();
}

/// Links laid where the agent's files go are not followed.
#[test]
fn links_in_the_run_directory_are_not_followed() {
    let instance = or_skip!(Instance::new("links"));
    let victim = instance.path().join("victim");
    let files = [
        "ledger.json",
        "ledger.moving",
        "gates.json",
        "lease",
        "agent.lock",
        "start.lock",
        "agent.log",
        "tidegate.sock",
    ];
    for file in files {
        std::fs::write(&victim, "precious").unwrap();
        let _ = std::fs::remove_dir_all(instance.run_dir());
        std::fs::create_dir(instance.run_dir()).unwrap();
        std::os::unix::fs::symlink(&victim, instance.run_dir().join(file)).unwrap();
        let output = instance.output(&["run", "--side", "--", "cat", "/proc/self/cgroup"]);
        let text = std::fs::read_to_string(&victim).unwrap();
        assert_eq!(text, "precious", "{file}: {}", describe(&output));
        if !output.status.success() {
            assert!(stderr(&output).contains(file), "{}", describe(&output));
        }
        let _ = instance.output(&["agent", "stop"]);
        for pid in agents(instance.prefix())
            .into_iter()
            .chain(guardians(instance.prefix()))
        {
            kill9(pid);
        }
        wait("them to end", Duration::from_secs(10), || {
            agents(instance.prefix()).is_empty()
        });
    }
    tell("links in the run directory", files.len() as u64);
}
