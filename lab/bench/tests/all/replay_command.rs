//! `tidegate-lab replay` and `tidegate-lab tune` from outside, on recordings that are made here.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use tidegate_recording::{Machine, Recording, Second, Work, WorkSecond, save};

fn tidegate(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate-lab"))
        .current_dir(dir)
        .env("NO_COLOR", "1")
        .env("TZ", "UTC")
        .args(args)
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn work(id: u32, name: &str, cgroup: &str, class: &str) -> Work {
    let is_gate = class != "neutral";
    let file = "/etc/tidegate/tidegate.toml:4:9".to_owned();
    let term = ("class".to_owned(), class.to_owned(), file);
    Work {
        id,
        name: name.to_owned(),
        is_gate,
        class: class.to_owned(),
        cgroup: cgroup.to_owned(),
        terms: if is_gate { vec![term] } else { Vec::new() },
        ..Work::default()
    }
}

/// Twenty seconds of a server at 0.6 of two CPUs, of a backup under 20 % headroom and of some cron job, from
/// 2026-11-27T08:00:01Z on.
fn recording() -> Recording {
    let works = [
        work(0, "web", "/system.slice/web.service", "main"),
        work(1, "backup", "/system.slice/backup.service", "side"),
        work(
            2,
            "/system.slice/cron.service",
            "/system.slice/cron.service",
            "neutral",
        ),
    ];
    let used = |id, used_cpus, allowance_cpus| WorkSecond {
        id,
        used_cpus,
        allowance_cpus,
        processes: 2,
        ..WorkSecond::default()
    };
    let second = |nth: u64| Second {
        unix_ms: 1_795_766_400_000 + nth * 1_000,
        capacity_cpus: 2.0,
        main_cpus: 0.7,
        side_cpus: 0.88,
        idle_cpus: 0.42,
        allowance_cpus: 0.9,
        headroom_pct: 20.0,
        tolerance_pct: 1.0,
        main_turns: 600,
        main_wait_us: 60_000,
        main_wait_p99_us: 1_024,
        works: vec![
            used(0, 0.6, None),
            used(1, 0.88, Some(0.9)),
            used(2, 0.05, None),
        ],
        ..Second::default()
    };
    Recording {
        machine: Machine {
            cpus: 2,
            threads_per_core: 1,
            engine: "cgroup".to_owned(),
            sensing: "bpf".to_owned(),
            ..Machine::default()
        },
        works: works
            .into_iter()
            .map(|work| (work.id, work))
            .collect::<BTreeMap<_, _>>(),
        seconds: (1..=20).map(second).collect(),
        ..Recording::default()
    }
}

fn bed() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    save(&recording(), &dir.path().join("night.tgr")).unwrap();
    let policy = |headroom: &str| {
        format!(
            "version = 1\n[[rule]]\nname = \"web\"\nmatch = {{ unit = \"web.service\" }}\nterms = {{ class = \"main\", headroom = \"{headroom}\" }}\n\
             [[rule]]\nname = \"backups\"\nmatch = {{ unit = \"backup*.service\" }}\nterms = {{ class = \"side\" }}\n\
             [[rule]]\nname = \"none\"\nmatch = {{ unit = \"no.service\" }}\nterms = {{ class = \"side\" }}\n"
        )
    };
    std::fs::write(dir.path().join("bold.toml"), policy("5%")).unwrap();
    std::fs::write(dir.path().join("shy.toml"), policy("50%")).unwrap();
    dir
}

#[test]
fn a_replay_stands_beside_what_was() {
    let bed = bed();
    let args = [
        "replay",
        "night.tgr",
        "--policy",
        "bold.toml",
        "--policy",
        "shy.toml",
        "--seeds",
        "2",
    ];
    let output = tidegate(bed.path(), &args);
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    for line in [
        "recording 2026-11-27 08:00:00 to 2026-11-27 08:00:20: 20 s of 2 CPUs",
        "bold.toml: rule \"none\" matches nothing in this recording.",
    ] {
        assert!(text.contains(line), "no \"{line}\" in\n{text}");
    }
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let output = tidegate(bed.path(), &[&args[..], &["--json"]].concat());
    let view: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let arms = view["arms"].as_array().unwrap();
    let names: Vec<&str> = arms
        .iter()
        .map(|arm| arm["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["as it was", "bold.toml", "shy.toml"]);
    let idle = |at: usize| {
        arms[at]["figures"]["idle_kept_pct"]["value"]
            .as_f64()
            .unwrap()
    };
    assert!(
        (idle(0) - 21.0).abs() < 0.1 && (idle(1) - 5.0).abs() < 2.0 && (idle(2) - 50.0).abs() < 2.0,
        "{view:#}"
    );
    let works = arms[1]["works"].as_array().unwrap();
    let other = works
        .iter()
        .find(|work| work["name"] == "everything else")
        .unwrap();
    assert!(
        (other["used_cpus"].as_f64().unwrap() - 0.05).abs() < 0.03,
        "{other}"
    );
    assert_eq!(arms[1]["points"].as_array().unwrap().len(), 20);
}

#[test]
fn a_written_scenario_is_a_file_that_runs() {
    let bed = bed();
    let args = [
        "replay",
        "night.tgr",
        "--policy",
        "bold.toml",
        "--seeds",
        "1",
        "--scenario",
        "night.toml",
        "--quiet",
    ];
    let output = tidegate(bed.path(), &args);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("wrote night.toml; `tidegate-lab sim night.toml` runs it"));
    let output = tidegate(bed.path(), &["sim", "night.toml", "--json"]);
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn what_cannot_be_replayed_is_told_with_its_mend() {
    let bed = bed();
    std::fs::write(
        bed.path().join("wrong.toml"),
        "[[rule]]\nname = \"a\"\nterms = { clas = \"side\" }\n",
    )
    .unwrap();
    for (args, exit, expected) in [
        (
            &["replay", "no.tgr"][..],
            5,
            "replay: no.tgr: there is no such file or directory",
        ),
        (
            &["replay", "bold.toml"],
            2,
            "no recording; write one with tidegate recording save",
        ),
        (
            &["replay", "night.tgr", "--from", "2026-11-27T09:00Z"],
            5,
            "nothing was recorded in that span; it goes from 2026-11-27 08:00:01 to 2026-11-27 08:00:20",
        ),
        (
            &["replay", "night.tgr", "--from", "10:00", "--to", "09:00"],
            2,
            "--from: is not before --to",
        ),
        (
            &["replay", "night.tgr", "--from", "yesterday"],
            2,
            "is no time; write it as in 08:00",
        ),
        (
            &["replay", "night.tgr", "--policy", "wrong.toml"],
            2,
            "wrong.toml:3:11",
        ),
        (
            &["tune", "wep", "--recording", "night.tgr"],
            5,
            "wep: no such work in the recording; did you mean web?",
        ),
        (
            &["tune", "web", "--recording", "night.tgr"],
            2,
            "web: is main work",
        ),
        (
            &[
                "tune",
                "backup",
                "--recording",
                "night.tgr",
                "--aim",
                "soon",
            ],
            2,
            "write it as in p99<5ms",
        ),
    ] {
        let output = tidegate(bed.path(), args);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(exit), "{args:?}: {text}");
        assert!(text.contains(expected), "{args:?}: {text}");
    }
}

#[test]
fn what_is_tuned_is_a_policy_that_passes_the_check() {
    let bed = bed();
    let args = [
        "tune",
        "unit:backup",
        "--recording",
        "night.tgr",
        "--harm",
        "50%",
        "--seeds",
        "1",
        "--out",
        "found.toml",
    ];
    let output = tidegate(bed.path(), &args);
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains(" best\n") && text.contains("no terms"),
        "{text}"
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let found = bed.path().join("found.toml");
    let policy = std::fs::read_to_string(&found).unwrap();
    let config = tidegate_terms::Config::from_texts(&[(found, policy.clone())]);
    assert_eq!(config.unwrap().rules().len(), 1);
    assert!(
        policy.contains("match = { unit = \"backup.service\" }"),
        "{policy}"
    );
    let strict = [
        "tune",
        "backup",
        "--recording",
        "night.tgr",
        "--aim",
        "p99.99<50us",
        "--seeds",
        "1",
        "--json",
    ];
    let output = tidegate(bed.path(), &strict);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("no candidate meets the aim (p99.99<50us)"));
    let view: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(view["chosen"].is_null() && view["policy"].is_null());
}
