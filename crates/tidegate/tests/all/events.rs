//! `tidegate events`: each kind is provoked from outside, and told once.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::common::{Instance, OtherGroup, wait_for};

/// The events so far.
fn events(instance: &Instance) -> Vec<Value> {
    let text = instance.ok(&["events", "--json"]);
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn of_kind(instance: &Instance, kind: &str) -> Vec<Value> {
    let all = events(instance);
    all.into_iter()
        .filter(|event| event["kind"] == kind)
        .collect()
}

#[test]
fn what_happens_to_a_gate_is_told_once() {
    let Some(instance) = Instance::new("events") else {
        return;
    };
    let side = instance.background(&["--side", "--name", "first"], &["sleep", "100"]);
    let _other = instance.background(&["--side", "--name", "second"], &["sleep", "100"]);
    instance.gate("second");
    wait_for("the first gate", || {
        of_kind(&instance, "gate.created").len() == 2
    });
    let created = of_kind(&instance, "gate.created");
    let first = created
        .iter()
        .find(|event| event["gate"] == "first")
        .unwrap();
    assert!(
        first["message"]
            .as_str()
            .unwrap()
            .starts_with("side work of process"),
        "{first}"
    );
    assert!(first["time_unix_seconds"].as_f64().unwrap() > 1.7e9);
    drop(side);
    wait_for("its end", || of_kind(&instance, "gate.ended").len() == 1);
    let ended = of_kind(&instance, "gate.ended").remove(0);
    assert_eq!(ended["gate"], "first");
    let seq = ended["seq"].as_u64().unwrap();
    let since = instance.ok(&["events", "--since", &(seq - 1).to_string()]);
    assert!(
        since.lines().count() >= 1 && since.contains("gate.ended"),
        "{since}"
    );
}

#[test]
fn a_follower_is_told_as_it_happens_until_the_agent_ends() {
    let Some(instance) = Instance::new("follow") else {
        return;
    };
    let _first = instance.background(&["--side", "--name", "first"], &["sleep", "100"]);
    instance.gate("first");
    let mut command = instance.tidegate(&["events", "--follow", "--json"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut follower = command.stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut lines = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let mut next = |kind: &str| lines.find(|event| event["kind"] == kind).unwrap()["gate"].take();
    assert_eq!(next("gate.created"), "first");
    let second = instance.background(&["--side", "--name", "second"], &["sleep", "100"]);
    assert_eq!(next("gate.created"), "second");
    drop(second);
    assert_eq!(next("gate.ended"), "second");
    instance.ok(&["agent", "stop"]);
    assert_eq!(lines.count(), 0);
    let status = follower.wait().unwrap();
    assert_eq!(status.code(), Some(3));
}

#[test]
fn a_value_that_was_written_over_and_a_guardian_that_died_are_told() {
    let Some(instance) = Instance::new("told") else {
        return;
    };
    let group = OtherGroup::of_side(&instance);
    wait_for("the outside write", || {
        group.write_quota();
        !of_kind(&instance, "outside_write").is_empty()
    });
    let told = of_kind(&instance, "outside_write").remove(0);
    assert_eq!(told["gate"], group.name.as_str(), "{told}");
    let guardian = instance.json(&["status"])["guardian_pid"].as_u64().unwrap();
    let killed = std::process::Command::new("kill")
        .args(["-KILL", &guardian.to_string()])
        .status();
    assert!(killed.unwrap().success());
    wait_for("another guardian", || {
        !of_kind(&instance, "guardian.replaced").is_empty()
    });
    let totals = &instance.json(&["status"])["totals"];
    assert_eq!(totals["events"]["guardian.replaced"], 1, "{totals}");
    assert!(
        totals["events"]["outside_write"].as_u64().unwrap() >= 1,
        "{totals}"
    );
}
