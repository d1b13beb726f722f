//! `tidegate-lab sim` from outside: the same bytes from the same seed, other bytes from another
//! seed, and failures that name what repeats them.

use std::collections::BTreeMap;
use std::path::Path;

use tidegate_sim::scenario::BUILTIN;

use crate::support::{Ran, lab};

/// A short run of a scenario: long enough for every workload to do what it is there for.
const SHORT: &str = "--set duration=600ms --set warmup=100ms";

fn sim(dir: &Path, words: &str) -> Ran {
    lab(dir, &format!("sim {words}"))
}

/// Everything that a short run writes: what it prints, and its report.
fn bytes(words: &str) -> BTreeMap<String, Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let files = "--quiet --out report";
    let ran = sim(dir.path(), &format!("{files} {words} {SHORT}"));
    assert_eq!(ran.code, Some(0), "{words}: {}", ran.err);
    let mut found = BTreeMap::from([("printed".to_owned(), ran.out.into_bytes())]);
    for entry in std::fs::read_dir(dir.path().join("report")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        found.insert(name, std::fs::read(&path).unwrap());
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
        // The command names the seed; the figures must differ too.
        let rows = |files: &BTreeMap<String, Vec<u8>>| {
            let report = &files[&format!("{name}.json")];
            let report: serde_json::Value = serde_json::from_slice(report).unwrap();
            let rows = report["rows"].as_array().unwrap().iter();
            rows.map(|row| row["events"].clone()).collect::<Vec<_>>()
        };
        assert!(
            rows(&one) != rows(&other),
            "{name}: the seed changes nothing"
        );
    }
}

#[test]
fn a_report_names_the_command_that_repeats_it() {
    let dir = tempfile::tempdir().unwrap();
    let words = "burst --seed 7 --set duration=10ms --set warmup=0s --json";
    let report = sim(dir.path(), words).json();
    let again = report["machine"]["command"].as_str().unwrap();
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
fn a_folder_for_the_report_is_tried_before_the_work() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let ran = sim(dir.path(), &format!("burst --out file {SHORT}"));
    assert_eq!(ran.code, Some(1));
    let why = "tidegate-lab: sim: file: the report cannot be written: ";
    assert!(ran.err.starts_with(why), "{}", ran.err);
    let remedy = "; name another folder with --out\n";
    assert!(ran.err.ends_with(remedy), "{}", ran.err);
}
