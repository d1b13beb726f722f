//! `headroom = auto`: a web server and a video encoder, where side work harms main and where it does not.

use tidegate_sim::found::FoundHeadroom;
use tidegate_sim::outcome::Outcome;
use tidegate_sim::run::Stage;
use tidegate_sim::scenario::{Override, Scenario, Text};

use super::bed::SECOND;

/// The shipped scenario, limited by a policy on kernel files.
fn outcome(sets: &[(&str, &str)]) -> Outcome {
    let text = Text::load("web-server-and-encoder").unwrap();
    let common = [("engine.name", "knobs"), ("machine.check", "false")];
    let sets: Vec<Override> = common
        .iter()
        .chain(sets)
        .map(|(key, value)| Override::new(key, value))
        .collect();
    let scenario = Scenario::resolve(&text, &sets).unwrap();
    let stage = Stage::new(&scenario).unwrap();
    let outcome = stage.run(&scenario, Vec::new(), &mut |_| true).unwrap();
    assert!(outcome.refusals.is_empty(), "{:?}", outcome.refusals);
    outcome
}

/// The same, with the headroom found.
fn run(sets: &[(&str, &str)]) -> (FoundHeadroom, Outcome) {
    let outcome = outcome(&[&[("engine.headroom", "auto")], sets].concat());
    let found = outcome.found.unwrap();
    let latency = &outcome.series[0].values;
    println!(
        "{} CPUs: {found:?}; latency {} us, p99 {} us",
        outcome.cpus,
        latency.mean_ns() / 1_000,
        latency.percentile_ns(990_000) / 1_000
    );
    (found, outcome)
}

/// Idle-class work takes no CPU that a request wants.
#[test]
fn where_no_cores_are_shared_the_idle_class_alone_is_found() {
    let sets = [
        ("duration", "300s"),
        ("warmup", "100s"),
        ("machine.cpus", "8"),
        ("machine.threads_per_core", "1"),
        ("machine.contention", "none"),
        ("workload.requests.load", "20%"),
    ];
    let (found, outcome) = run(&sets);
    assert_eq!((found.level_ppm, found.why_unknown), (0, None));
    assert!(found.first_ns.unwrap() < 60 * SECOND, "{found:?}");
    let [_, lower_ppm, upper_ppm] = found.ratio_ppm.unwrap();
    assert!(lower_ppm < 1_050_000 && upper_ppm < 1_100_000, "{found:?}");
    // Probes take 1.5 %; chance makes it learn again now and then.
    let alone = self::outcome(&[&[("engine.policy", "idle")], &sets[..]].concat());
    let encoder_ns = |of: &Outcome| of.groups[2].usage_ns;
    let (got, due) = (encoder_ns(&outcome), encoder_ns(&alone));
    assert!(got * 100 > due * 95, "{got} of {due} ns");
}

/// A busy sibling slows a request by much more than the aim.
#[test]
fn where_cores_are_shared_it_goes_up() {
    let (found, _) = run(&[
        ("duration", "1200s"),
        ("machine.cpus", "8"),
        ("workload.requests.load", "20%"),
        ("engine.harm", "20%"),
    ]);
    assert!((300_000..=600_000).contains(&found.level_ppm), "{found:?}");
    assert!(found.first_ns.unwrap() < 1200 * SECOND, "{found:?}");
}

#[test]
fn the_same_seed_finds_the_same() {
    let short = [("duration", "60s"), ("machine.cpus", "4")];
    let (one, two) = (run(&short), run(&short));
    assert_eq!(one.0, two.0);
    assert_eq!(one.1.events, two.1.events);
}

/// Usage files tell nothing of waits.
#[test]
fn without_exact_sensing_the_default_is_in_force() {
    let (found, _) = run(&[
        ("duration", "30s"),
        ("machine.cpus", "4"),
        ("engine.sense", "usage"),
    ]);
    assert_eq!((found.level_ppm, found.low_ns), (200_000, 0));
    assert!(found.why_unknown.unwrap().contains("usage files"));
}

/// Requests are so rare that there is nobody to harm.
#[test]
fn a_hog_alone_is_not_throttled() {
    let (found, outcome) = run(&[
        ("duration", "120s"),
        ("warmup", "2s"),
        ("machine.cpus", "2"),
        ("workload.requests.load", "0.1%"),
        ("workload.encoder.serial", "0ms"),
    ]);
    assert_eq!((found.level_ppm, found.low_ns), (0, 0), "{found:?}");
    assert_eq!(outcome.groups[2].throttled_periods, 0);
}
