//! `tidegate-lab sim` from outside: the same bytes from the same seed on any number of threads, other bytes from another seed,
//! and failures that name what repeats them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use tidegate_sim::scenario::BUILTIN;

fn tidegate(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate-lab"))
        .current_dir(dir)
        .env("NO_COLOR", "1")
        .arg("sim")
        .args(args)
        .output()
        .unwrap()
}

/// Everything that a run writes: what it prints, its logs, traces and reports.
fn bytes(args: &[&str]) -> BTreeMap<String, Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let mut all = vec![
        "--quiet", "--log", "run.log", "--trace", "run.json", "--out", "report",
    ];
    all.extend(args);
    let output = tidegate(dir.path(), &all);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {said}");
    let mut found = BTreeMap::from([("printed".to_owned(), output.stdout)]);
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

/// A short run of a scenario: long enough for every workload to do what it is there for.
const SHORT: [&str; 4] = ["--set", "duration=600ms", "--set", "warmup=100ms"];

#[test]
fn shipped_scenarios_give_the_same_bytes_on_one_and_on_two_threads() {
    for builtin in BUILTIN {
        let sweep = |jobs| {
            let mut args = vec![builtin.name, "--jobs", jobs, "--sweep", "seed=1,2"];
            args.extend(SHORT);
            bytes(&args)
        };
        let (one, two) = (sweep("1"), sweep("2"));
        assert_eq!(
            one.keys().collect::<Vec<_>>(),
            two.keys().collect::<Vec<_>>()
        );
        for (name, content) in &one {
            assert!(content == &two[name], "{}: {name} differs", builtin.name);
            assert!(!content.is_empty(), "{}: {name} is empty", builtin.name);
        }
        // Comments hold the command, which names the seed; the events themselves must differ too.
        let events = |name: &str| {
            let log = String::from_utf8(one[name].clone()).unwrap();
            let lines = log.lines().filter(|line| !line.starts_with('#'));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let (first, second) = (events("run.1.log"), events("run.2.log"));
        assert!(
            first.len() > 300,
            "{}: {} events",
            builtin.name,
            first.len()
        );
        assert!(
            first != second,
            "{}: the seed changes nothing",
            builtin.name
        );
    }
}

#[test]
fn engines_and_policies_give_the_same_bytes_twice() {
    for policy in tidegate_sim::registry::policies() {
        let mut args = vec![
            "web-server-and-encoder",
            "--engine",
            "cgroup",
            "--policy",
            policy.name,
        ];
        args.extend(SHORT);
        assert!(bytes(&args) == bytes(&args), "{}", policy.name);
    }
}

#[test]
fn a_trace_is_json_and_a_log_has_known_letters() {
    let mut args = vec!["burst"];
    args.extend(SHORT);
    let found = bytes(&args);
    let trace: serde_json::Value = serde_json::from_slice(&found["run.json"]).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    for phase in ["M", "X", "C", "i"] {
        assert!(
            events.iter().any(|event| event["ph"] == phase),
            "no {phase}"
        );
    }
    let log = String::from_utf8(found["run.log"].clone()).unwrap();
    for line in log
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_digit()))
    {
        let mut columns = line.split(' ');
        let time_ns: u64 = columns.next().unwrap().parse().unwrap();
        assert!(time_ns <= 600_000_000, "{line}");
        let letter = columns.next().unwrap();
        assert!(
            "SWBFXMTURKV".contains(letter) && letter.len() == 1,
            "{line}"
        );
        assert!(columns.next().is_some(), "{line}");
    }
}

#[test]
fn a_failure_names_the_command_that_repeats_it() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "burst",
        "--seed",
        "7",
        "--set",
        "duration=10ms",
        "--set",
        "warmup=0s",
        "--log",
        "no/such/folder/log",
    ];
    let output = tidegate(dir.path(), &args);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("no/such/folder/log: cannot be written"),
        "{said}"
    );
    let again = said.split("again: ").nth(1).unwrap().trim();
    assert_eq!(
        again,
        "tidegate-lab sim burst --set duration=10ms --set warmup=0s --seed 7"
    );
    // The line works as it stands.
    let words: Vec<&str> = again.split(' ').skip(2).collect();
    assert!(tidegate(dir.path(), &words).status.success());
}

#[test]
fn a_printed_scenario_is_a_file_that_runs() {
    let dir = tempfile::tempdir().unwrap();
    let printed = tidegate(dir.path(), &["web-server-and-encoder", "--print"]);
    std::fs::write(dir.path().join("web.toml"), &printed.stdout).unwrap();
    let mut args = vec!["web.toml", "--json"];
    args.extend(SHORT);
    let output = tidegate(dir.path(), &args);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["scenario"]["name"], "web");
    assert!(report["rows"].as_array().unwrap().len() > 5);
}

#[test]
fn what_is_no_text_file_is_told_as_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("latin.toml"),
        b"seed = 1\nabout = \"caf\xe9\"\n",
    )
    .unwrap();
    std::fs::create_dir(dir.path().join("folder")).unwrap();
    for (asked, expected) in [
        (
            "latin.toml",
            "latin.toml:2: not UTF-8; save the file as UTF-8 text",
        ),
        ("folder", "folder: is a folder; name the file in it"),
    ] {
        let output = tidegate(dir.path(), &[asked]);
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, format!("tidegate-lab: sim: {expected}\n"));
    }
}

#[test]
fn nothing_overwrites_the_scenario_that_runs() {
    let dir = tempfile::tempdir().unwrap();
    let printed = tidegate(dir.path(), &["burst", "--print"]).stdout;
    std::fs::write(dir.path().join("mine.toml"), &printed).unwrap();
    for (flags, expected) in [
        (
            ["--log", "./mine.toml"].as_slice(),
            "--log ./mine.toml: is the scenario itself",
        ),
        (
            &["--trace", "mine.toml"],
            "--trace mine.toml: is the scenario itself",
        ),
        (
            &["--log", "new", "--trace", "new"],
            "--trace new: is the log too",
        ),
    ] {
        let mut args = vec!["mine.toml"];
        args.extend(SHORT);
        args.extend(flags);
        let output = tidegate(dir.path(), &args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            said,
            format!("tidegate-lab: sim: {expected}; name another file\n")
        );
        assert_eq!(output.status.code(), Some(2));
    }
    assert_eq!(
        std::fs::read(dir.path().join("mine.toml")).unwrap(),
        printed
    );
}

#[test]
fn a_folder_for_the_report_is_tried_before_the_work() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let mut args = vec!["burst", "--log", "run.log", "--out", "file"];
    args.extend(SHORT);
    let output = tidegate(dir.path(), &args);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.starts_with("tidegate-lab: sim: file: the report cannot be written: "),
        "{said}"
    );
    assert!(
        said.ends_with("; name another folder with --out\n"),
        "{said}"
    );
    assert!(!dir.path().join("run.log").exists());
}
