//! The simulator against the virtual machine's figures as last kept, and the readers' own rules.

use super::*;
use crate::figures::Figure;
use crate::judge::judge;

const SCENARIOS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/check/scenarios.txt"
);
const FROZEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/check/vm.txt");

#[test]
fn the_simulator_agrees_with_the_kernel_in_virtual_time() {
    let all = scenario::parse(&read(SCENARIOS).unwrap()).unwrap();
    let pair = pair(&all, Some(FROZEN), u64::MAX).unwrap().unwrap();
    let rows: Vec<Row> = all
        .iter()
        .flat_map(|scenario| table::rows(scenario, Some(&pair), None))
        .collect();
    let (good, bad) = table::outside(&rows, |row| &row.vm);
    for row in rows.iter().filter(|row| bad.contains(&row.name.as_str())) {
        let (kernel, sim, verdict) = row.vm.as_ref().unwrap();
        println!(
            "{}: kernel {} sim {}: {}",
            row.name, kernel.value, sim.value, verdict.difference
        );
    }
    assert!(bad.is_empty(), "outside the criteria: {bad:?}");
    // Every scenario that the virtual machine runs is in the figures kept.
    let on_vm = all.iter().filter(|scenario| scenario.on.contains("vm"));
    for scenario in on_vm {
        let prefix = format!("{}.", scenario.name);
        assert!(
            pair.kernel.names().any(|name| name.starts_with(&prefix)),
            "{prefix} was never measured"
        );
    }
    assert!(good > 60, "only {good} figures were judged");
}

#[test]
fn one_description_gives_the_same_figures_twice() {
    let all = scenario::parse(&read(SCENARIOS).unwrap()).unwrap();
    let some: Vec<Scenario> = all
        .into_iter()
        .filter(|s| s.name.starts_with("wake-mess"))
        .collect();
    let figures = || Figures::parse(&read(FROZEN).unwrap()).unwrap();
    let once = rehearsed(&some, figures(), u64::MAX).unwrap();
    let twice = rehearsed(&some, figures(), u64::MAX).unwrap();
    assert!(once.sim.names().count() > 0);
    for name in once.sim.names() {
        assert_eq!(once.sim.get(name), twice.sim.get(name));
    }
}

fn figure(value: f64, unit: &str) -> Figure {
    Figure {
        value,
        unit: unit.to_owned(),
    }
}

#[test]
fn criteria_are_those_of_the_docs() {
    let within = |name: &str, k: f64, s: f64, unit: &str, cpus: u32| {
        judge(name, &figure(k, unit), &figure(s, unit), cpus).within
    };
    assert_eq!(within("x.share.a", 50.0, 51.9, "%", 1), Some(true));
    assert_eq!(within("x.share.a", 50.0, 52.1, "%", 1), Some(false));
    assert_eq!(within("x.share.a", 50.0, 53.9, "%", 2), Some(true));
    assert_eq!(
        within("x.throttled.a", 100.0, 105.0, "count", 1),
        Some(true)
    );
    assert_eq!(
        within("x.throttled.a", 100.0, 94.0, "count", 1),
        Some(false)
    );
    assert_eq!(within("x.throttled.a", 0.0, 1.0, "count", 1), Some(true));
    assert_eq!(within("x.p50.a", 1_000.0, 1_999.0, "us", 1), Some(true));
    assert_eq!(within("x.p50.a", 1_000.0, 450.0, "us", 1), Some(false));
    assert_eq!(within("x.p50.a", 9.0, 2.0, "us", 1), Some(true));
    assert_eq!(within("x.p50.a", 9.0, 20.0, "us", 1), Some(false));
    assert_eq!(within("x.p90.a", 1.0, 900.0, "us", 1), None);
}

#[test]
fn a_mistake_in_a_scenario_names_its_line() {
    for (text, line) in [
        ("group a\n", "line 1"),
        ("scenario s\ngroup a weigh=3\n", "line 2"),
        ("scenario s\ngroup a\ntask t group=b kind=hog\n", "line 3"),
        ("scenario s\ngroup a\ntask t group=a kind=dog\n", "line 3"),
        ("scenario s\nread share a\n", "line 2"),
        ("scenario s\nspan_ms long\n", "line 2"),
    ] {
        let why = scenario::parse(text).unwrap_err();
        assert!(why.contains(line), "{why}");
    }
}

#[test]
fn the_table_goes_between_its_markers() {
    let document = "a\n<!-- check-sim: begin (written by `cargo xtask check-sim --write`) -->\nold\n<!-- check-sim: end -->\nb\n";
    let new = table::spliced(document, "new\n").unwrap();
    assert!(new.contains("-->\nnew\n<!--") && new.starts_with("a\n") && new.ends_with("b\n"));
    assert!(table::spliced("nothing", "x").is_err());
}
