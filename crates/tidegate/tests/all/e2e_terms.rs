//! `set`, `unset`, `show` and `explain` on processes and groups that are not ours, and what is put back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::common::{Background, Instance, cgroups_of, cpu_mount, wait_for};

/// A group of the test's own.
struct Group(PathBuf);

impl Group {
    fn new(instance: &Instance) -> Group {
        // Not the instance's prefix: this is another program's group.
        let path = cpu_mount().0.join(format!("other-{}", instance.prefix()));
        std::fs::create_dir(&path).unwrap();
        Group(path)
    }

    fn values(&self) -> BTreeMap<&'static str, String> {
        [
            "cpu.cfs_quota_us",
            "cpu.cfs_period_us",
            "cpu.shares",
            "cpu.idle",
            "cpu.max",
            "cpu.weight",
        ]
        .into_iter()
        .filter_map(|file| Some((file, std::fs::read_to_string(self.0.join(file)).ok()?)))
        .collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_process_comes_back_to_where_it_was() {
    let Some(instance) = Instance::new("pid") else {
        return;
    };
    let process = Background::start(&["sleep", "60"]);
    let before = cgroups_of(process.pid());
    let target = format!("pid:{}", process.pid());
    let gate = instance.json(&["set", &target, "class=side", "weight=50"]);
    assert_eq!(gate["class"], "side");
    let during = cgroups_of(process.pid());
    assert_ne!(before, during, "it is in a group of its own");
    let shown = instance.json(&["status", &target]);
    let weight = shown["terms"]
        .as_array()
        .unwrap()
        .iter()
        .find(|term| term["name"] == "weight")
        .unwrap();
    assert_eq!(
        (&weight["value"], &weight["source"]),
        (&"50".into(), &"set".into())
    );
    assert_eq!(weight["overrode"][0], "100 (default)");
    instance.ok(&["set", &target, "weight=80"]);
    instance.ok(&["unset", &target, "weight"]);
    let shown = instance.json(&["status", &target]);
    let weight = shown["terms"]
        .as_array()
        .unwrap()
        .iter()
        .find(|term| term["name"] == "weight")
        .unwrap();
    assert_eq!(weight["value"], "100");
    let page = instance.ok(&["explain", &target]);
    assert!(page.contains("Binds: "), "{page}");
    instance.ok(&["unset", &target]);
    wait_for("the process to be back", || {
        cgroups_of(process.pid()) == before
    });
    instance.gone();
}

#[test]
fn a_group_gets_its_values_back() {
    let Some(instance) = Instance::new("group") else {
        return;
    };
    let group = Group::new(&instance);
    let (_, v1) = cpu_mount();
    let (file, value) = if v1 {
        ("cpu.shares", "512")
    } else {
        ("cpu.weight", "70")
    };
    std::fs::write(group.0.join(file), value).unwrap();
    let before = group.values();
    let process = Background::start(&["sleep", "60"]);
    std::fs::write(group.0.join("cgroup.procs"), process.pid().to_string()).unwrap();
    let target = format!("cgroup:/{}", group.0.file_name().unwrap().to_str().unwrap());
    instance.ok(&["set", &target, "class=side", "headroom=40%"]);
    assert_eq!(instance.json(&["status"])["headroom_ratio"], 0.4);
    wait_for("a limit", || group.values() != before);
    assert!(
        cgroups_of(process.pid()).contains("other-"),
        "it was not moved out of its group"
    );
    instance.ok(&["unset", &target]);
    assert_eq!(group.values(), before);
    instance.gone();
    drop(process);
    wait_for("the group to empty", || {
        std::fs::read_to_string(group.0.join("cgroup.procs")).is_ok_and(|procs| procs.is_empty())
    });
}

#[test]
fn stop_restores_and_lets_commands_go_on() {
    let Some(instance) = Instance::new("stop") else {
        return;
    };
    let group = Group::new(&instance);
    let before = group.values();
    let target = format!("cgroup:/{}", group.0.file_name().unwrap().to_str().unwrap());
    instance.ok(&["set", &target, "class=side"]);
    let mut sleeper = instance.background(&["--side", "--name", "sleeper"], &["sleep", "60"]);
    instance.gate("sleeper");
    instance.ok(&["agent", "stop"]);
    wait_for("the socket to go", || {
        !instance.run_dir().join("tidegate.sock").exists()
    });
    assert_eq!(group.values(), before);
    assert!(
        sleeper.0.try_wait().unwrap().is_none(),
        "the command goes on"
    );
}

#[test]
fn a_process_in_a_gate_is_explained_by_its_gate() {
    let Some(instance) = Instance::new("inside") else {
        return;
    };
    let sleeper = instance.background(&["--side", "--name", "sleeper"], &["sleep", "60"]);
    instance.gate("sleeper");
    let view = instance.json(&["explain", &format!("pid:{}", sleeper.0.id())]);
    assert_eq!(view["gate"]["name"], "sleeper");
}

#[test]
fn what_is_not_there_ends_with_5_and_what_cannot_be_with_4() {
    let Some(instance) = Instance::new("codes") else {
        return;
    };
    let _keeper = instance.background(&["--side", "--name", "keeper"], &["sleep", "60"]);
    instance.gate("keeper");
    for target in ["gate:none", "pid:4194303", "cgroup:/no/such/group"] {
        let output = instance.output(&["explain", target]);
        assert_eq!(
            output.status.code(),
            Some(5),
            "{target}: {}",
            crate::common::describe(&output)
        );
    }
    for target in ["pid:4194303", "cgroup:/no/such/group"] {
        let output = instance.output(&["set", target, "class=side"]);
        assert_eq!(
            output.status.code(),
            Some(5),
            "{target}: {}",
            crate::common::describe(&output)
        );
    }
    for target in ["pid:x", "pod:a/b", "cgroup:/../../etc", "cgroup:relative"] {
        let output = instance.output(&["set", target, "class=side"]);
        assert!(
            matches!(output.status.code(), Some(2 | 4 | 5)),
            "{target}: {}",
            crate::common::describe(&output)
        );
        assert!(
            crate::common::stderr(&output).starts_with("tidegate: "),
            "{}",
            crate::common::describe(&output)
        );
    }
}

#[test]
fn files_are_read_and_their_mistakes_refused_with_their_place() {
    let Some(instance) = Instance::new("files") else {
        return;
    };
    std::fs::create_dir_all(instance.run_dir()).unwrap();
    let file = instance.run_dir().join("tidegate.toml");
    std::fs::write(
        &file,
        "default_headroom = '150%'\n[side]\ntolerence = '3%'\n",
    )
    .unwrap();
    let refused = instance.output(&["run", "--side", "--", "true"]);
    assert_eq!(
        refused.status.code(),
        Some(125),
        "{}",
        crate::common::describe(&refused)
    );
    let text = crate::common::stderr(&refused);
    for expected in [
        "tidegate.toml:1:20: \"150%\" is above 100%",
        "tidegate.toml:3:1: no such term; did you mean tolerance?",
    ] {
        assert!(text.contains(expected), "{text}");
    }
    assert!(instance.groups_left().is_empty());
    std::fs::write(&file, "[side]\ntolerance = '3%'\nheadroom = '45%'\n").unwrap();
    let _sleeper = instance.background(&["--side", "--name", "sleeper"], &["sleep", "60"]);
    let gate = instance.gate("sleeper");
    let tolerance = gate["terms"]
        .as_array()
        .unwrap()
        .iter()
        .find(|term| term["name"] == "tolerance")
        .unwrap();
    assert_eq!(tolerance["value"], "3%");
    assert_eq!(tolerance["source"], format!("{}:2:13", file.display()));
    let status = instance.json(&["status"]);
    assert_eq!(
        (
            status["headroom_ratio"].as_f64(),
            status["tolerance_ratio"].as_f64()
        ),
        (Some(0.45), Some(0.03))
    );
}

#[test]
fn an_engine_that_this_kernel_lacks_is_refused_with_its_mend() {
    let Some(instance) = Instance::new("engine") else {
        return;
    };
    if Path::new("/sys/kernel/sched_ext").exists() {
        eprintln!("skipped: this kernel has sched_ext");
        return;
    }
    for words in [
        &["agent", "run", "--engine", "sched_ext"][..],
        &["agent", "run", "--on-demand", "--engine", "sched_ext"],
    ] {
        let output = instance.output(words);
        let said = [&output.stderr[..], &output.stdout].concat();
        let said = String::from_utf8_lossy(&said);
        assert_eq!(
            output.status.code(),
            Some(if words.len() == 4 { 1 } else { 0 }),
            "{said}"
        );
        assert!(said.contains("agent: sched_ext: kernel "), "{said}");
        assert!(said.contains("engine = cgroup"), "{said}");
    }
    std::fs::create_dir_all(instance.run_dir()).unwrap();
    std::fs::write(
        instance.run_dir().join("tidegate.toml"),
        "engine = \"sched_ext\"\n",
    )
    .unwrap();
    let output = instance.output(&["run", "--side", "--", "true"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("agent: sched_ext: kernel "), "{said}");
    std::fs::write(
        instance.run_dir().join("tidegate.toml"),
        "engine = \"auto\"\n",
    )
    .unwrap();
    instance.ok(&["run", "--side", "--", "true"]);
    let doctor = instance.ok(&["doctor"]);
    assert!(
        doctor.contains("engine sched_ext is unavailable: kernel "),
        "{doctor}"
    );
}
