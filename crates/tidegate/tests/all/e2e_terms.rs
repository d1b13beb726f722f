//! `set`, `unset`, `show` and `explain` on processes and groups that are not ours, and what is put
//! back.

use std::path::Path;

use serde_json::Value;

use crate::common::{
    Background, Instance, OtherGroup, cgroups_of, ends_with, or_skip, stderr, stdout, wait_for,
};

/// The term of that name, as `status` shows a gate's.
fn term<'a>(gate: &'a Value, name: &str) -> &'a Value {
    let mut terms = gate["terms"].as_array().unwrap().iter();
    terms.find(|term| term["name"] == name).unwrap()
}

#[test]
fn a_group_gets_its_values_back_from_unset_and_from_a_stop() {
    let instance = or_skip!(Instance::new("group"));
    let group = OtherGroup::new(&instance);
    group.write_weight();
    let before = group.values();
    let process = Background::start(&["sleep", "60"]);
    group.enter(process.pid());
    let target = group.target();
    let gate = instance.json(&["set", &target, "class=side", "headroom=40%", "weight=50"]);
    let weight = term(&gate, "weight");
    assert_eq!(
        (&weight["value"], &weight["source"]),
        (&"50".into(), &"set".into())
    );
    assert_eq!(weight["overrode"][0], "100 (default)");
    assert_eq!(instance.json(&["status"])["headroom_ratio"], 0.4);
    assert_ne!(group.values(), before);
    let place = cgroups_of(process.pid());
    assert!(place.contains("other-"), "moved out of its group: {place}");
    instance.ok(&["unset", &target, "weight"]);
    assert_eq!(
        term(&instance.json(&["status", &target]), "weight")["value"],
        "100"
    );
    instance.ok(&["unset", &target]);
    assert_eq!(group.values(), before);
    instance.gone();

    instance.ok(&["set", &target, "class=side"]);
    let mut sleeper = instance.sleeper("sleeper");
    let inside = format!("pid:{}", sleeper.pid());
    let view = instance.json(&["explain", &inside]);
    assert_eq!(view["gate"]["name"], "sleeper");
    let page = instance.ok(&["explain", &inside]);
    assert!(page.contains("Binds: "), "{page}");
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
fn files_are_read_and_their_mistakes_refused_with_their_place() {
    let instance = or_skip!(Instance::new("files"));
    std::fs::create_dir_all(instance.run_dir()).unwrap();
    let file = instance.run_dir().join("tidegate.toml");
    std::fs::write(
        &file,
        "[side]\ndefault_headroom = '150%'\ntolerence = '3%'\n",
    )
    .unwrap();
    let text = instance.fails(&["run", "--side", "--", "true"], 125);
    for expected in [
        "tidegate.toml:2:20: \"150%\" is above 100%",
        "tidegate.toml:3:1: no such term; did you mean tolerance?",
    ] {
        assert!(text.contains(expected), "{text}");
    }
    assert!(instance.groups_left().is_empty());
    std::fs::write(&file, "[side]\ntolerance = '3%'\nheadroom = '45%'\n").unwrap();
    let _sleeper = instance.background(&["--side", "--name", "sleeper"], &["sleep", "60"]);
    let gate = instance.gate("sleeper");
    let tolerance = term(&gate, "tolerance");
    assert_eq!(tolerance["value"], "3%");
    assert_eq!(tolerance["source"], format!("{}:2:13", file.display()));
    let status = instance.json(&["status"]);
    assert_eq!(status["headroom_ratio"], 0.45);
    assert_eq!(status["tolerance_ratio"], 0.03);
}

#[test]
fn an_engine_that_this_kernel_lacks_is_refused_with_its_remedy() {
    let instance = or_skip!(Instance::new("engine"));
    if Path::new("/sys/kernel/sched_ext").exists() {
        eprintln!("skipped: this kernel has sched_ext");
        return;
    }
    for words in [
        &["agent", "run", "--engine", "sched_ext"][..],
        &["agent", "run", "--on-demand", "--engine", "sched_ext"],
    ] {
        let output = instance.output(words);
        let said = stderr(&output) + &stdout(&output);
        ends_with(&output, if words.len() == 4 { 4 } else { 0 });
        assert!(said.contains("agent: sched_ext: kernel "), "{said}");
        assert!(said.contains("engine = cgroup"), "{said}");
    }
    std::fs::create_dir_all(instance.run_dir()).unwrap();
    let file = instance.run_dir().join("tidegate.toml");
    std::fs::write(
        &file,
        "engine = \"sched_ext\"
",
    )
    .unwrap();
    let said = instance.fails(&["run", "--side", "--", "true"], 125);
    assert!(
        said.contains("cannot be started: sched_ext: kernel "),
        "{said}"
    );
    std::fs::write(
        &file,
        "engine = \"auto\"
",
    )
    .unwrap();
    instance.ok(&["run", "--side", "--", "true"]);
    let doctor = instance.ok(&["doctor"]);
    assert!(
        doctor.contains("engine sched_ext is unavailable: kernel "),
        "{doctor}"
    );
}
