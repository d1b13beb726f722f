//! `tidegate events`: each kind is provoked from outside, and told once.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::common::{Instance, OtherGroup, or_skip, wait_for};
use crate::support_kill::processes::kill9;

fn of_kind(instance: &Instance, kind: &str) -> Vec<Value> {
    let text = instance.ok(&["events", "--json"]);
    let all = text.lines().map(|line| serde_json::from_str(line).unwrap());
    all.filter(|event: &Value| event["kind"] == kind).collect()
}

#[test]
fn a_follower_is_told_as_it_happens_until_the_agent_ends() {
    let instance = or_skip!(Instance::new("follow"));
    let _first = instance.sleeper("first");
    wait_for("its event", || {
        !of_kind(&instance, "gate.created").is_empty()
    });
    let created = of_kind(&instance, "gate.created").remove(0);
    let message = created["message"].as_str().unwrap();
    assert!(message.starts_with("side work of process"), "{created}");
    assert!(created["time_unix_seconds"].as_f64().unwrap() > 1.7e9);
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
    for (kind, count) in [("gate.created", 2), ("gate.ended", 1)] {
        assert_eq!(of_kind(&instance, kind).len(), count, "{kind}: once each");
    }
    let ended = of_kind(&instance, "gate.ended").remove(0);
    let before = ended["seq"].as_u64().unwrap() - 1;
    let since = instance.ok(&["events", "--since", &before.to_string()]);
    assert!(since.contains("gate.ended"), "{since}");
    instance.ok(&["agent", "stop"]);
    assert_eq!(lines.count(), 0);
    let status = follower.wait().unwrap();
    assert_eq!(status.code(), Some(3));
}

#[test]
fn a_value_that_was_written_over_and_a_guardian_that_died_are_told() {
    let instance = or_skip!(Instance::new("told"));
    let group = OtherGroup::of_side(&instance);
    wait_for("the outside write", || {
        group.write_quota();
        !of_kind(&instance, "outside_write").is_empty()
    });
    let told = of_kind(&instance, "outside_write").remove(0);
    assert_eq!(told["gate"], group.name.as_str(), "{told}");
    let guardian = instance.json(&["status"])["guardian_pid"].as_u64().unwrap();
    kill9(guardian as i32);
    wait_for("another guardian", || {
        !of_kind(&instance, "guardian.replaced").is_empty()
    });
    let totals = &instance.json(&["status"])["totals"];
    assert_eq!(totals["events"]["guardian.replaced"], 1, "{totals}");
    assert!(
        totals["events"]["outside_write"].as_u64() >= Some(1),
        "{totals}"
    );
}
