//! The simulator against a real kernel: `kernel.toml` on a machine like the VM's guest, beside the
//! figures of `kernel.txt`, which `cargo xtask vm kernel-figures` measures. `cargo test -p
//! tidegate-sim --test all kernel -- --nocapture` prints both.

use tidegate_sim::Costs;
use tidegate_sim::outcome::Outcome;
use tidegate_sim::scenario::Text;

use super::support::{run, scenario, text};

const SCENARIOS: &str = include_str!("../kernel.toml");
/// One figure a line: SCENARIO.WHAT.WHOSE VALUE UNIT; `#` begins the line that names the kernel.
const FIGURES: &str = include_str!("../kernel.txt");
/// One CPU in virtual time, where an instruction is a nanosecond.
const GUEST: [(&str, &str); 3] = [
    ("warmup", "500ms"),
    ("machine.cpus", "1"),
    ("machine.contention", "none"),
];

/// What the kernel's own work costs there.
fn guest_costs() -> Costs {
    Costs {
        switch_ns: 2_066,
        wakeup_ns: 2_819,
        op_ns: 977,
        idle_exit_ns: 544,
        tick_ns: 4_627,
        ..Costs::default()
    }
}

/// A wakeup shorter than this consists of the kernel's own path, which is a constant in the
/// simulator.
const PATH_US: f64 = 20.0;

/// The scenarios of `kernel.toml`, each with its own text: groups keep the order in which they are
/// written.
fn scenarios() -> impl Iterator<Item = (&'static str, &'static str)> {
    SCENARIOS
        .split("\n[")
        .skip(1)
        .map(|scenario| scenario.split_once("]\n").expect("a name and keys"))
}

fn outcome(name: &str, keys: &str) -> Outcome {
    let duration = if keys.contains("duration") {
        ""
    } else {
        "duration = \"4500ms\"\n"
    };
    let text = Text {
        name: name.into(),
        ..text(&format!("{duration}{keys}"))
    };
    let mut scenario = scenario(&text, &GUEST);
    scenario.machine.costs = guest_costs();
    run(&scenario)
}

/// The simulator's value of a figure.
fn simulated(outcome: &Outcome, what: &str, whose: &str) -> f64 {
    let group = || outcome.groups.iter().find(|group| group.name == whose);
    let series = || outcome.series.iter().find(|one| one.workload == whose);
    let late = |ppm| series().unwrap().values.percentile_ns(ppm) as f64 / 1e3;
    match what {
        "share" => 100.0 * group().unwrap().usage_ns as f64 / outcome.measured_ns as f64,
        "throttled" => group().unwrap().stat.nr_throttled as f64,
        "bursts" => group().unwrap().stat.nr_bursts as f64,
        "p50" => late(500_000),
        "p99" => late(990_000),
        _ => panic!("{what}: no such figure"),
    }
}

/// Shares within 2 points; counts within 5 %, or one that falls on the window's edge; latencies
/// within a factor of 2.
fn is_near(kernel: f64, simulated: f64, unit: &str) -> bool {
    let apart = (kernel - simulated).abs();
    match unit {
        "%" => apart <= 2.0,
        "count" => apart <= (0.05 * kernel).max(1.0),
        "us" => {
            let factor = (kernel / simulated).max(simulated / kernel);
            factor <= 2.0 || kernel.max(simulated) < PATH_US
        }
        _ => panic!("{unit}: no such unit"),
    }
}

#[test]
fn the_fair_class_does_what_the_kernels_does() {
    let mut far = Vec::new();
    for (name, keys) in scenarios() {
        let outcome = outcome(name, keys);
        let mut compared = 0;
        for line in FIGURES.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split([' ', '.']).collect();
            let &[scenario, what, whose, ..] = words.as_slice() else {
                panic!("{line}");
            };
            if scenario != name {
                continue;
            }
            let [_, value, unit] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            let kernel: f64 = value.parse().unwrap();
            let ours = simulated(&outcome, what, whose);
            println!(
                "{scenario:18} {what:9} {whose:8} kernel {kernel:9.2} simulated {ours:9.2} {unit}"
            );
            compared += 1;
            if !is_near(kernel, ours, unit) {
                far.push(format!("{line}: {ours:.2}"));
            }
        }
        assert!(compared > 0, "{name}: no figure of the kernel's");
    }
    assert!(far.is_empty(), "{far:#?}");
}
