//! What an agent records, as a user takes it: a file of the last minutes, which outlives agents.

use std::fs;

use tidegate_recording::{Recording, load};

use crate::common::{Instance, describe, or_skip, wait_for};

fn recorded(instance: &Instance) -> Recording {
    let path = instance.path().join("kept.tgr");
    instance.ok(&[
        "recording",
        "save",
        "--last",
        "60s",
        "--out",
        path.to_str().unwrap(),
    ]);
    load(&path, 0, u64::MAX).unwrap()
}

/// Seconds in which the gate ran: beside other work that may be little.
fn seconds_of(recording: &Recording, gate: &str) -> usize {
    let id = recording.works.values().find(|work| work.name == gate);
    let Some(id) = id.map(|work| work.id) else {
        return 0;
    };
    let seconds = recording.seconds.iter();
    let ran = seconds.filter(|second| second.works.iter().any(|work| work.id == id));
    ran.count()
}

#[test]
fn what_ran_is_recorded_and_outlives_a_killed_agent() {
    let instance = or_skip!(Instance::new("recording"));
    let hog = ["sh", "-c", "while :; do :; done"];
    let _side = instance.background(&["--side", "--headroom", "30%", "--name", "encode"], &hog);
    instance.gate("encode");
    let directory = || {
        let status = instance.json(&["status"]);
        status["recording"]["directory"].as_str().map(str::to_owned)
    };
    wait_for("a recording", || directory().is_some());
    wait_for("three seconds of the gate", || {
        seconds_of(&recorded(&instance), "encode") >= 3
    });
    let before = recorded(&instance);
    instance.kill_agent();
    wait_for("two seconds more", || {
        seconds_of(&recorded(&instance), "encode") >= seconds_of(&before, "encode") + 2
    });
    let after = recorded(&instance);
    let encodes = after.works.values().filter(|work| work.name == "encode");
    assert_eq!(encodes.count(), 1);
    let whole = before.seconds.len() - 1;
    assert_eq!(after.seconds[..whole], before.seconds[..whole]);
    assert_eq!(after.damaged_bytes, 0);
    let steps_before = before.steps.len();
    assert!(steps_before > 100, "{steps_before} steps");
    assert!(after.steps.len() > steps_before && after.steps[..steps_before] == before.steps);
    let kept = instance.path().join("kept.tgr");
    let top = instance.ok(&["top", "--once", "--recording", kept.to_str().unwrap()]);
    assert!(
        top.contains("recording: ") && top.contains("encode"),
        "{top}"
    );
    let directory = directory().unwrap();
    let top = instance.ok(&["top", "--once", "--recording", &directory]);
    assert!(top.contains("encode"), "{top}");
    for entry in fs::read_dir(&directory).unwrap() {
        let mode = std::os::unix::fs::MetadataExt::mode(&entry.unwrap().metadata().unwrap());
        assert_eq!(mode & 0o077, 0, "for root alone");
    }
}

#[test]
fn where_nothing_was_recorded_it_says_so_and_what_to_do() {
    let instance = or_skip!(Instance::new("recording-none"));
    let said = instance.fails(&["recording", "save", "--last", "60s"], 5);
    let remedy = "start an agent, which records while it runs";
    assert!(said.contains(remedy), "{said}");
    let notes = instance.path().join("notes.txt");
    fs::write(&notes, "no recording").unwrap();
    let output = instance.output(&["top", "--once", "--recording", notes.to_str().unwrap()]);
    assert!(describe(&output).contains("no recording; write one with"));
}
