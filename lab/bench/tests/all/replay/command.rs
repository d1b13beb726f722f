//! `tidegate-lab replay` and `tidegate-lab tune` from outside, on recordings that are made here.

use tidegate_recording::{Recording, Second, WorkSecond, save};

use super::support::{FILE, recorded, work};
use crate::support::lab;

/// Twenty seconds of a server at 0.6 of two CPUs, of a backup under 20 % headroom and of some cron
/// job, from 2026-11-27T08:00:01Z on.
fn recording() -> Recording {
    let cron = "/system.slice/cron.service";
    let works = vec![
        work(
            0,
            "web",
            "/system.slice/web.service",
            &[("class", "main", FILE)],
        ),
        work(
            1,
            "backup",
            "/system.slice/backup.service",
            &[("class", "side", FILE)],
        ),
        work(2, cron, cron, &[]),
    ];
    let used = |(id, used_cpus, allowance_cpus)| WorkSecond {
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
        works: [(0, 0.6, None), (1, 0.88, Some(0.9)), (2, 0.05, None)]
            .map(used)
            .into(),
        ..Second::default()
    };
    recorded(2, works, (1..=20).map(second).collect())
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
    let words = "replay night.tgr --policy bold.toml --policy shy.toml --seeds 2";
    let ran = lab(bed.path(), words);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    for line in [
        "recording 2026-11-27 08:00:00 to 2026-11-27 08:00:20: 20 s of 2 CPUs",
        "bold.toml: rule \"none\" matches nothing in this recording.",
    ] {
        assert!(ran.out.contains(line), "no \"{line}\" in\n{}", ran.out);
    }
    is_narrow(&ran.out);
    let view = lab(bed.path(), &format!("{words} --json")).json();
    let arms = view["arms"].as_array().unwrap();
    let names: Vec<_> = arms
        .iter()
        .map(|arm| arm["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["as it was", "bold.toml", "shy.toml"]);
    for (arm, pct, within) in [
        (&arms[0], 21.0, 0.1),
        (&arms[1], 5.0, 2.0),
        (&arms[2], 50.0, 2.0),
    ] {
        let idle = arm["figures"]["idle_kept_pct"]["value"].as_f64().unwrap();
        assert!((idle - pct).abs() < within, "{view:#}");
    }
    let works = arms[1]["works"].as_array().unwrap();
    let other = works.iter().find(|work| work["name"] == "everything else");
    let used = other.unwrap()["used_cpus"].as_f64().unwrap();
    assert!((used - 0.05).abs() < 0.03, "{used}");
    assert_eq!(arms[1]["points"].as_array().unwrap().len(), 20);
}

fn is_narrow(text: &str) {
    let mut lines = text.lines();
    assert!(lines.all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_written_scenario_is_a_file_that_runs() {
    let bed = bed();
    let words = "replay night.tgr --policy bold.toml --seeds 1 --scenario night.toml --quiet";
    let ran = lab(bed.path(), words);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let next = "wrote night.toml; `tidegate-lab sim night.toml` runs it";
    assert!(ran.err.contains(next), "{}", ran.err);
    lab(bed.path(), "sim night.toml --json").json();
}

#[test]
fn what_cannot_be_replayed_is_told_with_its_remedy() {
    let bed = bed();
    let wrong = "[[rule]]\nname = \"a\"\nterms = { clas = \"side\" }\n";
    std::fs::write(bed.path().join("wrong.toml"), wrong).unwrap();
    for (words, exit, expected) in [
        (
            "replay no.tgr",
            5,
            "replay: no.tgr: there is no such file or directory",
        ),
        (
            "replay bold.toml",
            2,
            "no recording; write one with tidegate recording save",
        ),
        (
            "replay night.tgr --from 2026-11-27T09:00Z",
            5,
            "nothing was recorded in that span; it goes from 2026-11-27 08:00:01 to 2026-11-27 08:00:20",
        ),
        (
            "replay night.tgr --from 10:00 --to 09:00",
            2,
            "--from: is not before --to",
        ),
        (
            "replay night.tgr --from yesterday",
            2,
            "is no time; write it as in 08:00",
        ),
        ("replay night.tgr --policy wrong.toml", 2, "wrong.toml:3:11"),
        (
            "tune wep --recording night.tgr",
            5,
            "wep: no such work in the recording; did you mean web?",
        ),
        ("tune web --recording night.tgr", 2, "web: is main work"),
        (
            "tune backup --recording night.tgr --aim soon",
            2,
            "write it as in p99<5ms",
        ),
    ] {
        let ran = lab(bed.path(), words);
        assert_eq!(ran.code, Some(exit), "{words}: {}", ran.err);
        assert!(ran.err.contains(expected), "{words}: {}", ran.err);
    }
}

#[test]
fn what_is_tuned_is_a_policy_that_passes_the_check() {
    let bed = bed();
    let words = "tune unit:backup --recording night.tgr --harm 50% --seeds 1 --out found.toml";
    let ran = lab(bed.path(), words);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let has_rows = ran.out.contains(" best\n") && ran.out.contains("no terms");
    assert!(has_rows, "{}", ran.out);
    is_narrow(&ran.out);
    let found = bed.path().join("found.toml");
    let policy = std::fs::read_to_string(&found).unwrap();
    let config = tidegate_terms::Config::from_texts(&[(found, policy.clone())]);
    assert_eq!(config.unwrap().rules().len(), 1);
    let rule = "match = { unit = \"backup.service\" }";
    assert!(policy.contains(rule), "{policy}");
    let words = "tune backup --recording night.tgr --aim p99.99<50us --seeds 1 --json";
    let ran = lab(bed.path(), words);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let why = "no candidate meets the aim (p99.99<50us)";
    assert!(ran.err.contains(why), "{}", ran.err);
    let view: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert!(view["chosen"].is_null() && view["policy"].is_null());
}
