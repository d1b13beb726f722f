//! Terms that are found.

use tidegate_lab::replay::Replay;
use tidegate_lab::replay::target::{TargetError, find};
use tidegate_lab::replay::tune::{Aim, TuneError, WITHOUT_TERMS, tune};
use tidegate_recording::Recording;

use super::support::{FILE, OPTIONS, Seen, recording, simulate};

/// A server on two CPUs and an encode without terms, that takes what it gets.
const BUSY: &str = r#"
duration = "33s"
warmup = "3s"
window = "1s"
[machine]
cpus = 2
contention = "none"
[group.web]
class = "main"
[group.encode]
[workload.requests]
kind = "open-loop"
group = "web"
load = "40%"
work = "2ms"
work_shape = "exponential"
[workload.encoder]
kind = "hog"
group = "encode"
tasks = 2
"#;

fn busy() -> Recording {
    let works = [
        Seen {
            group: "web",
            cgroup: "/system.slice/web.service",
            class: "main",
            terms: &[("class", "main", FILE)],
            processes: 4,
        },
        Seen {
            group: "encode",
            cgroup: "/user.slice/encode.scope",
            class: "neutral",
            terms: &[],
            processes: 2,
        },
    ];
    recording(&simulate(BUSY, &[]), 0.2, &works)
}

#[test]
fn work_without_terms_gets_the_headroom_that_main_needs() {
    let recording = busy();
    let replay = Replay::new(&recording, OPTIONS).unwrap();
    let work = find(&recording, &replay.demand, "encode.scope").unwrap();
    let by_harm = |ppm| tune(&replay, work, Aim::Harm { ppm }, &|_| {}).unwrap();
    let (strict, loose) = (by_harm(100_000), by_harm(200_000));
    for row in &strict.rows {
        println!(
            "{} {:?} {:?} {:?}",
            row.terms, row.work_pct, row.harm_pct, row.is_met
        );
    }
    let headroom = |view: &tidegate_lab::replay::tune::TuneView| {
        view.chosen.and_then(|at| view.rows[at].headroom_pct)
    };
    let (strict_pct, loose_pct) = (headroom(&strict), headroom(&loose));
    assert!(strict_pct > loose_pct, "{strict_pct:?} {loose_pct:?}");
    // Without terms it is harmful, and what is chosen is not.
    let without = strict.rows.iter().find(|row| row.terms == WITHOUT_TERMS);
    assert_eq!(without.unwrap().is_met, Some(false));
    assert_eq!(without.unwrap().work_pct, Some(100.0));
    let chosen = &loose.rows[loose.chosen.unwrap()];
    assert!(chosen.harm_pct.unwrap().to <= 20.0);
    // More headroom, less work done.
    let done: Vec<f64> = loose.rows[2..]
        .iter()
        .filter_map(|row| row.work_pct)
        .collect();
    assert!(done.is_sorted_by(|a, b| *a >= *b - 1.0), "{done:?}");
}

#[test]
fn an_aim_of_waits_is_met_with_every_seed() {
    let recording = busy();
    let replay = Replay::new(&recording, OPTIONS).unwrap();
    let work = find(&recording, &replay.demand, "unit:encode.scope").unwrap();
    let aim = Aim::parse("p99<6ms").unwrap();
    let view = tune(&replay, work, aim, &|_| {}).unwrap();
    for row in &view.rows {
        println!(
            "{} {:?} {:?}",
            row.terms, row.arm.figures.main_wait_p99_us, row.is_met
        );
    }
    let chosen = &view.rows[view.chosen.unwrap()];
    assert!(chosen.arm.figures.main_wait_p99_us.unwrap().to < 6_000.0);
    let never = tune(&replay, work, Aim::parse("p99.99<50us").unwrap(), &|_| {}).unwrap();
    assert_eq!(never.chosen, None);
    assert!(Aim::parse("reported<5ms").is_err() && Aim::parse("5ms").is_err());
    let web = find(&recording, &replay.demand, "gate:web").unwrap();
    let error = tune(&replay, web, aim, &|_| {}).unwrap_err();
    assert!(matches!(error, TuneError::IsMain(_)), "{error}");
}

#[test]
fn a_target_is_told_in_each_way_and_a_wrong_one_gets_the_nearest() {
    let recording = busy();
    let demand = tidegate_lab::replay::Demand::of(&recording);
    for asked in [
        "web",
        "gate:web",
        "unit:web",
        "web.service",
        "unit:web.service",
        "/system.slice/web.service",
        "cgroup:/system.slice/web.service",
    ] {
        assert_eq!(find(&recording, &demand, asked), Ok(0), "{asked}");
    }
    for asked in ["gate:encode.scope", "unit:encode", "cgroup:web", ""] {
        let error = find(&recording, &demand, asked).unwrap_err();
        assert!(matches!(error, TargetError::None { .. }), "{asked}");
    }
    let error = find(&recording, &demand, "unit:encod.scope")
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "unit:encod.scope: no such work in the recording; did you mean encode.scope?"
    );
}
