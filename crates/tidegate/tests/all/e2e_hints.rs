//! Latency hints on the running kernel: of commands, processes and groups; kept across exec, fork and a dead agent; undone.

use std::path::PathBuf;
use std::process::Command;

use crate::common::{Background, Instance, children, cpu_mount, wait_for};
use tidegate_cgroup::sched::hint::{self, give};
use tidegate_cgroup::sched::{HintSetting, probe};
use tidegate_cgroup::{KernelFs, RealFs};

/// The instance, and the kernel's default slice; `None` with the reason printed where tasks take no slices.
fn instance(name: &str) -> Option<(Instance, u64)> {
    let support = probe(&RealFs::new()).unwrap();
    if !support.slices {
        eprintln!("skipped: {name}: this kernel gives tasks no slices of their own");
        return None;
    }
    Some((Instance::new(name)?, support.base_ns))
}

/// Slices of a process's threads.
fn slices(pid: u32) -> Vec<u64> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task"));
    let tids = entries
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    tids.filter_map(|tid| Some(RealFs::new().sched(tid).ok()?.slice_ns))
        .collect()
}

const FIRST_NS: u64 = 100_000;

/// A group of the test's own, with processes in it.
struct Group(PathBuf);

impl Group {
    fn new(instance: &Instance) -> Group {
        let path = cpu_mount().0.join(format!("hinted-{}", instance.prefix()));
        std::fs::create_dir(&path).unwrap();
        Group(path)
    }

    fn target(&self) -> String {
        format!("cgroup:/{}", self.0.file_name().unwrap().to_str().unwrap())
    }

    fn enter(&self, pid: u32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        wait_for("the group to empty", || {
            std::fs::remove_dir(&self.0).is_ok()
        });
    }
}

#[test]
fn a_command_has_it_from_its_first_instruction_and_so_has_what_it_forks() {
    let Some((instance, base_ns)) = instance("hint-run") else {
        return;
    };
    let script = "sleep 60 & exec sleep 60";
    let shell = instance.background(
        &["--side", "--name", "hinted", "--latency", "-20"],
        &["sh", "-c", script],
    );
    instance.gate("hinted");
    wait_for("the exec and the fork", || {
        let comm = std::fs::read_to_string(format!("/proc/{}/comm", shell.pid()));
        comm.is_ok_and(|comm| comm == "sleep\n") && children(shell.pid()).len() == 1
    });
    let child = children(shell.pid())[0];
    assert_eq!(slices(shell.pid()), [FIRST_NS], "kept across exec");
    assert_eq!(slices(child), [FIRST_NS], "inherited by fork");
    wait_for("both to be counted", || {
        instance.gate("hinted")["latency"]["tasks"] == 2
    });
    let page = instance.ok(&["status", "hinted"]);
    assert!(page.contains("a slice of 0.100 ms"), "{page}");
    assert!(page.contains("run quantum"), "{page}");
    instance.ok(&["unset", "gate:hinted", "latency"]);
    assert_eq!(slices(shell.pid()), [base_ns]);
    assert_eq!(slices(child), [base_ns]);
}

#[test]
fn every_thread_of_a_process_has_it_and_gives_it_back() {
    let Some((instance, base_ns)) = instance("hint-pid") else {
        return;
    };
    // The agent's own program with its threads, as a process that is not Tidegate's: it is another instance's.
    let Some(other) = Instance::new("hint-other") else {
        return;
    };
    let _held = other.background(&["--side"], &["sleep", "60"]);
    let mut pid = 0;
    wait_for("an agent with threads", || {
        let output = other.output(&["status", "--json"]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        pid = status["pid"].as_u64().unwrap_or(0) as u32;
        slices(pid).len() > 2
    });
    let target = format!("pid:{pid}");
    // Its control loop may be real-time: then it has no slice, and is left alone.
    let all_have = |slice_ns: u64| {
        let fair: Vec<u64> = slices(pid).into_iter().filter(|ns| *ns > 0).collect();
        assert!(
            fair.len() > 1 && fair.iter().all(|ns| *ns == slice_ns),
            "{fair:?}"
        );
    };
    instance.ok(&["set", &target, "latency=-20"]);
    all_have(FIRST_NS);
    instance.ok(&["set", &target, "latency=3"]);
    all_have(hint_ns(3, base_ns));
    instance.ok(&["unset", &target]);
    all_have(base_ns);
    instance.gone();
}

/// 1.25 to the hint, for a positive one.
fn hint_ns(hint: u32, base_ns: u64) -> u64 {
    (0..hint).fold(base_ns, |slice_ns, _| slice_ns * 5 / 4)
}

#[test]
fn a_group_gives_its_hint_to_new_tasks_and_keeps_foreign_slices() {
    let Some((instance, base_ns)) = instance("hint-group") else {
        return;
    };
    let group = Group::new(&instance);
    let (early, late) = (
        Background::start(&["sleep", "60"]),
        Background::start(&["sleep", "60"]),
    );
    let own = Background::start(&["sleep", "60"]);
    give(
        &RealFs::new(),
        own.pid() as i32,
        HintSetting::SliceNs(9_000_000),
    )
    .unwrap();
    group.enter(early.pid());
    group.enter(own.pid());
    instance.ok(&["set", &group.target(), "latency=-20"]);
    assert_eq!(slices(early.pid()), [FIRST_NS]);
    assert_eq!(slices(own.pid()), [FIRST_NS]);
    group.enter(late.pid());
    wait_for("the sweep", || slices(late.pid()) == [FIRST_NS]);
    give(
        &RealFs::new(),
        late.pid() as i32,
        HintSetting::SliceNs(5_000_000),
    )
    .unwrap();
    instance.ok(&["unset", &group.target()]);
    assert_eq!(slices(early.pid()), [base_ns]);
    assert_eq!(slices(own.pid()), [9_000_000], "what it had before");
    assert_eq!(slices(late.pid()), [5_000_000], "another program's");
    instance.gone();
    drop((early, late, own));
}

#[test]
fn a_killed_agent_is_followed_by_one_that_knows_and_stop_undoes() {
    let Some((instance, base_ns)) = instance("hint-kill") else {
        return;
    };
    let process = Background::start(&["sleep", "60"]);
    let command = instance.background(
        &["--side", "--name", "stays", "--latency", "-20"],
        &["sleep", "60"],
    );
    instance.gate("stays");
    let target = format!("pid:{}", process.pid());
    instance.ok(&["set", &target, "latency=-20"]);
    let agent = instance.json(&["status"])["pid"].as_u64().unwrap();
    let _ = Command::new("kill")
        .args(["-KILL", &agent.to_string()])
        .status();
    wait_for("another agent", || {
        let output = instance.output(&["status", "--json"]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        status["pid"].as_u64().is_some_and(|pid| pid != agent)
    });
    assert_eq!(slices(process.pid()), [FIRST_NS]);
    let shown = instance.json(&["status", &target]);
    assert_eq!(shown["latency"]["tasks"], 1);
    instance.ok(&["agent", "stop"]);
    assert_eq!(slices(process.pid()), [base_ns]);
    assert_eq!(slices(command.pid()), [FIRST_NS], "until it ends");
}

#[test]
fn children_that_are_not_to_inherit_lose_it() {
    let Some((instance, base_ns)) = instance("hint-heirs") else {
        return;
    };
    let shell = instance.background(
        &[
            "--side",
            "--name",
            "alone",
            "--latency",
            "-20",
            "--latency-inherit",
            "no",
        ],
        &["sh", "-c", "sleep 60 & wait"],
    );
    instance.gate("alone");
    wait_for("the fork", || children(shell.pid()).len() == 1);
    let child = children(shell.pid())[0];
    wait_for("the sweep", || slices(child) == [base_ns]);
    assert_eq!(slices(shell.pid()), [FIRST_NS]);
}

#[test]
fn a_real_time_thread_is_left_alone_and_said() {
    let Some((instance, _)) = instance("hint-rt") else {
        return;
    };
    let process = Background::start(&["chrt", "-f", "1", "sleep", "60"]);
    wait_for("SCHED_FIFO", || {
        let task = RealFs::new().sched(process.pid() as i32);
        task.is_ok_and(|task| {
            hint::standing(&task, HintSetting::Batch, |_| false) == hint::Standing::RealTime
        })
    });
    let target = format!("pid:{}", process.pid());
    let gate = instance.json(&["set", &target, "latency=-20"]);
    assert_eq!(gate["latency"]["tasks"], 0);
    assert_eq!(gate["latency"]["left_alone"][0], "1 real-time");
    instance.ok(&["unset", &target]);
}
