//! The simulator against the virtual machine's figures as last kept, and the readers' own rules.

use super::*;
use crate::figures::Figure;
use crate::judge::{Window, judge};
use tidegate_sim::scenario::Text;

const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/check/fair.toml");
const FROZEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/check/vm.txt");
const EXT_SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/check/ext.toml");
const EXT_FROZEN: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/check/ext-6.18.txt"
);
const EXT_FROZEN_73: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/check/ext-7.3.txt");

/// Compares with figures that were kept; how many are within, and which are not.
fn against(table: &Table, scenarios: &str, frozen: &str, bed: &str) -> (usize, Vec<String>) {
    let all = scenario::load(scenarios).unwrap();
    let pairs = [pair(table.of, &all, Some(frozen), u64::MAX).unwrap(), None];
    let rows: Vec<Row> = all
        .iter()
        .flat_map(|scenario| table::rows(table.of, scenario, &pairs))
        .collect();
    let (good, bad) = table::outside(&rows, 0);
    for row in rows.iter().filter(|row| bad.contains(&row.name.as_str())) {
        let (kernel, sim, verdict) = row.held[0].as_ref().unwrap();
        println!(
            "{}: kernel {} sim {}: {}",
            row.name, kernel.value, sim.value, verdict.difference
        );
    }
    // Every scenario that the virtual machine runs is in the figures kept.
    for scenario in all
        .iter()
        .filter(|scenario| scenario.on.iter().any(|on| on == bed))
    {
        let prefix = format!("{}.", scenario.of.name);
        let kernel = &pairs[0].as_ref().unwrap().kernel;
        assert!(
            kernel.names().any(|name| name.starts_with(&prefix)),
            "{prefix} was never measured"
        );
    }
    (good, bad.into_iter().map(str::to_owned).collect())
}

#[test]
fn the_simulator_agrees_with_the_kernel_in_virtual_time() {
    let (good, bad) = against(&table::FAIR, SCENARIOS, FROZEN, "vm");
    assert!(bad.is_empty(), "outside the criteria: {bad:?}");
    assert!(good > 60, "only {good} figures were judged");
}

#[test]
fn the_simulator_agrees_with_the_ext_engine() {
    for frozen in [EXT_FROZEN, EXT_FROZEN_73] {
        let (good, mut bad) = against(&table::EXT, EXT_SCENARIOS, frozen, "ext");
        bad.retain(|name| !KNOWN.contains(&name.as_str()));
        assert!(bad.is_empty(), "{frozen}: outside the criteria: {bad:?}");
        assert!(good > 90, "{frozen}: only {good} figures were judged");
    }
}

/// One load of the engine serves all scenarios, and headroom is the machine's.
#[test]
fn headroom_is_the_same_in_all_scenarios_of_the_ext_engine() {
    let all = scenario::load(EXT_SCENARIOS).unwrap();
    let groups = all.iter().flat_map(|scenario| &scenario.of.groups);
    let asked: std::collections::BTreeSet<u32> = groups
        .filter(|group| group.headroom_said)
        .map(|group| group.spec.headroom_ppm)
        .collect();
    assert_eq!(asked.into_iter().collect::<Vec<_>>(), [300_000]);
}

#[test]
fn one_description_gives_the_same_figures_twice() {
    let all = scenario::load(SCENARIOS).unwrap();
    let some: Vec<Scenario> = all
        .into_iter()
        .filter(|s| s.of.name.starts_with("wake-mess"))
        .collect();
    let figures = || Figures::parse(&read(FROZEN).unwrap()).unwrap();
    let once = rehearsed(Of::Fair, &some, figures(), u64::MAX).unwrap();
    let twice = rehearsed(Of::Fair, &some, figures(), u64::MAX).unwrap();
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
        let window = Window {
            cpus,
            span_ms: 4_000,
        };
        judge(Of::Fair, name, &figure(k, unit), &figure(s, unit), window).within
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
    assert_eq!(within("x.done_p90.a", 1.0, 900.0, "us", 1), None);
    assert_eq!(
        within("x.done_p50.a", 1_000.0, 1_090.0, "us", 1),
        Some(true)
    );
    let ext_in = |span_ms: u64, name: &str, k: f64, s: f64, unit: &str| {
        let window = Window { cpus: 1, span_ms };
        judge(Of::Ext, name, &figure(k, unit), &figure(s, unit), window).within
    };
    let ext = |name: &str, k: f64, s: f64, unit: &str| ext_in(4_000, name, k, s, unit);
    assert_eq!(ext("x.share.a", 50.0, 50.9, "%"), Some(true));
    assert_eq!(ext("x.share.a", 50.0, 51.1, "%"), Some(false));
    // A tick of 300 ms is 1.33 %.
    assert_eq!(ext_in(300, "x.share.a", 50.0, 51.3, "%"), Some(true));
    assert_eq!(ext_in(300, "x.share.a", 50.0, 51.4, "%"), Some(false));
    assert_eq!(ext("x.p50.a", 9.0, 24.0, "us"), Some(true));
    assert_eq!(ext("x.done_p99.a", 10_000.0, 11_100.0, "us"), Some(false));
}

fn parsed(lines: &str) -> Result<Vec<Scenario>, String> {
    scenario::parse(&Text {
        shown: "t.toml".into(),
        name: "t".into(),
        text: format!("machine.cpus = 1\n[scenario.s]\ngroup.a = {{}}\n{lines}\n"),
        folder: None,
    })
}

#[test]
fn a_mistake_in_a_scenario_names_its_line() {
    let hog = "workload.h = { kind = \"hog\", group = \"a\" }\n";
    for (lines, line) in [
        ("group.b = { weigh = 3 }", "t.toml:4:"),
        ("read = [\"share b\"]", "t.toml:5:"),
        ("read = [\"latency a\"]", "t.toml:5:"),
        ("read = [\"periods h\"]", "t.toml:5:"),
        ("read = [\"size a\"]", "t.toml:5:"),
        ("on = [\"moon\"]", "t.toml:5:"),
        ("rewrite = \"often\"", "t.toml:5:"),
        ("rewrite = \"0s\"", "t.toml:5:"),
        ("read = { share = \"a\" }", "t.toml:5:"),
    ] {
        let text = match line {
            "t.toml:4:" => format!("{lines}\n{hog}"),
            _ => format!("{hog}{lines}"),
        };
        let why = parsed(&text).unwrap_err();
        assert!(why.contains(line), "{lines}: {why}");
    }
}

#[test]
fn the_kernels_runner_gets_every_value_and_nothing_that_it_cannot_do() {
    let all = parsed(
        "group.b = { parent = \"a\", quota = \"3ms\", class = \"side\", cap_soft = 200 }\n\
         workload.h = { kind = \"hog\", group = \"b\", tasks = 2, policy = \"batch\" }\n\
         workload.s = { kind = \"cyclictest\", group = \"a\", work = \"2us\", step_work = \"5us\", step_at = \"1s\" }\n\
         read = [\"share b\", \"done s\"]\nrewrite = \"7ms\"",
    );
    let expected = "\
        scenario s 1 0 10000000000 5000 7000000\n\
        group a -1 100 0 0 100000 0\n\
        group b 0 100 0 3000 100000 0\n\
        gate class=side cap_soft=200m cap_scope=group\n\
        task h 1 3 0 0 0 1\n\
        hog 2\n\
        task s 0 0 0 0 0 1\n\
        sleeper 1000000 2000 5000 1000000000\n\
        read share b 1 -1\n\
        read done s -1 1\n";
    assert_eq!(export::lines(&all.unwrap()[0]).unwrap(), expected);
    for lines in [
        "workload.w = { kind = \"hog\" }",
        "workload.w = { kind = \"hog\", group = \"a\", busy = \"30%\" }",
        "workload.w = { kind = \"hog\", group = \"a\", policy = \"fifo:3\" }",
        "workload.w = { kind = \"hog\", group = \"a\", cap_hard = 300 }",
        "workload.w = { kind = \"frames\", group = \"a\" }",
        "group.b.cpus = \"0\"\nworkload.w = { kind = \"hog\", group = \"b\" }",
    ] {
        assert!(parsed(lines).is_err(), "{lines}");
    }
}

#[test]
fn the_table_goes_between_its_markers() {
    let document = "a\n<!-- check-sim: begin (written by `cargo xtask check-sim --write`) -->\nold\n<!-- check-sim: end -->\nb\n";
    let new = table::FAIR.spliced(document, "new\n").unwrap();
    assert!(new.contains("-->\nnew\n<!--") && new.starts_with("a\n") && new.ends_with("b\n"));
    assert!(table::FAIR.spliced("nothing", "x").is_err());
    assert!(table::EXT.spliced(document, "x").is_err());
}
