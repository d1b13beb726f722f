//! `tidegate-lab sim` from outside: the same bytes from the same seed, other bytes from another seed,
//! and failures that name what repeats them.

use std::collections::BTreeMap;
use std::path::Path;

use tidegate_sim::scenario::BUILTIN;

use crate::support::{Ran, lab};

/// A short run of a scenario: long enough for every workload to do what it is there for.
const SHORT: &str = "--set duration=600ms --set warmup=100ms";

fn sim(dir: &Path, words: &str) -> Ran {
    lab(dir, &format!("sim {words}"))
}

/// Everything that a short run writes: what it prints, its traces and reports.
fn bytes(words: &str) -> BTreeMap<String, Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let files = "--quiet --trace run.json --out report";
    let ran = sim(dir.path(), &format!("{files} {words} {SHORT}"));
    assert_eq!(ran.code, Some(0), "{words}: {}", ran.err);
    let mut found = BTreeMap::from([("printed".to_owned(), ran.out.into_bytes())]);
    for folder in [dir.path().to_owned(), dir.path().join("report")] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn shipped_scenarios_give_the_same_bytes_from_the_same_seed() {
    for builtin in BUILTIN {
        let name = builtin.name;
        let of = |seed| bytes(&format!("{name} --seed {seed}"));
        let (one, again, other) = (of(1), of(1), of(2));
        assert!(one.keys().eq(again.keys()), "{name}");
        for (file, content) in &one {
            assert!(content == &again[file], "{name}: {file} differs");
            assert!(!content.is_empty(), "{name}: {file} is empty");
        }
        // The first line holds the command, which names the seed; the events must differ too.
        let events = |files: &BTreeMap<String, Vec<u8>>| {
            let trace = String::from_utf8(files["run.json"].clone()).unwrap();
            trace.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        let (first, second) = (events(&one), events(&other));
        assert!(first.len() > 300, "{name}: {} events", first.len());
        assert!(first != second, "{name}: the seed changes nothing");
    }
}

#[test]
fn the_engine_gives_the_same_bytes_twice() {
    let words = "web-server-and-encoder --engine cgroup";
    assert!(bytes(words) == bytes(words));
}

#[test]
fn a_trace_is_json() {
    let found = bytes("burst");
    let trace: serde_json::Value = serde_json::from_slice(&found["run.json"]).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    for phase in ["M", "X", "C", "i"] {
        assert!(events.iter().any(|one| one["ph"] == phase), "no {phase}");
    }
}

#[test]
fn a_failure_names_the_command_that_repeats_it() {
    let dir = tempfile::tempdir().unwrap();
    let words = "burst --seed 7 --set duration=10ms --set warmup=0s --trace no/such/folder/trace";
    let ran = sim(dir.path(), words);
    assert_eq!(ran.code, Some(1));
    let why = "no/such/folder/trace: cannot be written";
    assert!(ran.err.contains(why), "{}", ran.err);
    let again = ran.err.split("again: ").nth(1).unwrap().trim();
    assert_eq!(
        again,
        "tidegate-lab sim burst --set duration=10ms --set warmup=0s --seed 7"
    );
    // The line works as it stands.
    let words = again.strip_prefix("tidegate-lab ").unwrap();
    assert_eq!(lab(dir.path(), words).code, Some(0));
}

#[test]
fn a_printed_scenario_is_a_file_that_runs() {
    let dir = tempfile::tempdir().unwrap();
    let printed = sim(dir.path(), "web-server-and-encoder --print");
    std::fs::write(dir.path().join("web.toml"), &printed.out).unwrap();
    let report = sim(dir.path(), &format!("web.toml --json {SHORT}")).json();
    assert_eq!(report["scenario"]["name"], "web");
    assert!(report["rows"].as_array().unwrap().len() > 5);
}

#[test]
fn what_is_no_text_file_is_told_as_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let latin = b"seed = 1\nabout = \"caf\xe9\"\n";
    std::fs::write(dir.path().join("latin.toml"), latin).unwrap();
    std::fs::create_dir(dir.path().join("folder")).unwrap();
    for (asked, expected) in [
        (
            "latin.toml",
            "latin.toml:2: not UTF-8; save the file as UTF-8 text",
        ),
        ("folder", "folder: is a folder; name the file in it"),
    ] {
        let ran = sim(dir.path(), asked);
        assert_eq!(ran.code, Some(2));
        assert_eq!(ran.err, format!("tidegate-lab: sim: {expected}\n"));
    }
}

#[test]
fn nothing_overwrites_the_scenario_that_runs() {
    let dir = tempfile::tempdir().unwrap();
    let mine = dir.path().join("mine.toml");
    let printed = sim(dir.path(), "burst --print").out;
    std::fs::write(&mine, &printed).unwrap();
    for path in ["./mine.toml", "mine.toml"] {
        let ran = sim(dir.path(), &format!("mine.toml {SHORT} --trace {path}"));
        let line = format!(
            "tidegate-lab: sim: --trace {path}: is the scenario itself; name another file\n"
        );
        assert_eq!((ran.code, ran.err), (Some(2), line));
    }
    assert_eq!(std::fs::read_to_string(&mine).unwrap(), printed);
}

#[test]
fn a_folder_for_the_report_is_tried_before_the_work() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let ran = sim(
        dir.path(),
        &format!("burst --trace run.json --out file {SHORT}"),
    );
    assert_eq!(ran.code, Some(1));
    let why = "tidegate-lab: sim: file: the report cannot be written: ";
    assert!(ran.err.starts_with(why), "{}", ran.err);
    let remedy = "; name another folder with --out\n";
    assert!(ran.err.ends_with(remedy), "{}", ran.err);
    assert!(!dir.path().join("run.json").exists());
}
