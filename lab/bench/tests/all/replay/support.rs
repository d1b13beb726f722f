//! A simulated run turned into a recording, as the agent would have recorded it.

use std::path::Path;

use tidegate_lab::replay::view::{ArmView, FigureView};
use tidegate_lab::replay::{Options, Policy, Replay, ReplayView};
use tidegate_recording::{Machine, Recording, Second, Work, WorkSecond};
use tidegate_sim::outcome::Outcome;
use tidegate_sim::run::Stage;
use tidegate_sim::scenario::{Override, Scenario, Text};
use tidegate_terms::Config;

pub fn simulate(toml: &str, overrides: &[(&str, &str)]) -> Outcome {
    let text = Text {
        shown: "original.toml".into(),
        name: "original".into(),
        text: toml.into(),
    };
    let laid: Vec<Override> = overrides
        .iter()
        .map(|(key, value)| Override::new(key, value))
        .collect();
    let scenario = Scenario::resolve(&text, &laid).unwrap_or_else(|errors| panic!("{errors}"));
    let stage = Stage::new(&scenario).unwrap();
    stage.run(&scenario, &mut |_| {}).unwrap()
}

/// A group of the scenario as a work.
pub struct Seen {
    pub group: &'static str,
    pub cgroup: &'static str,
    pub class: &'static str,
    pub terms: &'static [(&'static str, &'static str, &'static str)],
    pub processes: u32,
}

pub const FILE: &str = "/etc/tidegate/tidegate.toml:3:9";

/// Mean use of a group.
pub fn used_cpus(outcome: &Outcome, group: &str) -> f64 {
    let found = outcome.groups.iter().find(|one| one.name == group).unwrap();
    found.usage_ns as f64 / outcome.measured_ns as f64
}

/// A work with these terms: their names, values and sources; without one it is no gate.
pub fn work(id: u32, name: &str, cgroup: &str, terms: &[(&str, &str, &str)]) -> Work {
    let class = terms.iter().find(|term| term.0 == "class");
    let owned = |&(name, value, source): &(&str, &str, &str)| {
        (name.to_owned(), value.to_owned(), source.to_owned())
    };
    Work {
        id,
        name: name.to_owned(),
        is_gate: !terms.is_empty(),
        class: class.map_or("neutral", |term| term.1).to_owned(),
        cgroup: cgroup.to_owned(),
        terms: terms.iter().map(owned).collect(),
        ..Work::default()
    }
}

/// A machine of so many CPUs, its works, and what was recorded of each second.
pub fn recorded(cpus: u32, works: Vec<Work>, seconds: Vec<Second>) -> Recording {
    Recording {
        machine: Machine {
            cpus,
            threads_per_core: 1,
            engine: "cgroup".to_owned(),
            sensing: "bpf".to_owned(),
            ..Machine::default()
        },
        works: works.into_iter().map(|work| (work.id, work)).collect(),
        seconds,
        ..Recording::default()
    }
}

/// As recorded under `headroom` of the machine, in seconds of one window each.
pub fn recording(outcome: &Outcome, headroom: f64, works: &[Seen]) -> Recording {
    let at = |group: &str| {
        let found = outcome.groups.iter().position(|one| one.name == group);
        found.unwrap()
    };
    let cpus = f64::from(outcome.cpus);
    let main = works.iter().find(|seen| seen.class == "main");
    let waits = main.map(|seen| outcome.groups[at(seen.group)].wakeup.clone());
    let count = outcome.samples.len() as u64;
    let second = |(nth, sample): (usize, &tidegate_sim::outcome::Sample)| {
        let used = |at: usize| sample.usage_ns[at] as f64 / outcome.window_ns as f64;
        let is_side = |seen: &&Seen| seen.class == "side";
        let side_cpus: f64 = works
            .iter()
            .filter(is_side)
            .map(|seen| used(at(seen.group)))
            .sum();
        let main_cpus = used(0) - side_cpus;
        let allowance = (cpus * (1.0 - headroom) - main_cpus).max(0.01 * cpus);
        let waits = waits.clone().unwrap_or_default();
        Second {
            unix_ms: 1_700_000_000_000 + (nth as u64 + 1) * 1_000,
            capacity_cpus: cpus as f32,
            main_cpus: main_cpus as f32,
            side_cpus: side_cpus as f32,
            idle_cpus: (cpus - used(0)) as f32,
            allowance_cpus: allowance as f32,
            headroom_pct: headroom as f32 * 100.0,
            tolerance_pct: 1.0,
            main_turns: (waits.count() / count) as u32,
            main_wait_us: (waits.sum_ns() / 1_000) as u64 / count,
            main_wait_p99_us: (waits.percentile_ns(990_000) / 1_000) as u32,
            works: works
                .iter()
                .enumerate()
                .map(|(id, seen)| WorkSecond {
                    id: id as u32,
                    used_cpus: used(at(seen.group)) as f32,
                    allowance_cpus: (seen.class == "side").then_some(allowance as f32),
                    throttled_us: 0,
                    processes: seen.processes,
                    ..WorkSecond::default()
                })
                .collect(),
            ..Second::default()
        }
    };
    let each = (0..).zip(works).map(|(id, seen)| {
        let name = if seen.terms.is_empty() {
            seen.cgroup
        } else {
            seen.group
        };
        work(id, name, seen.cgroup, seen.terms)
    });
    let seconds = outcome.samples.iter().enumerate().map(second);
    recorded(outcome.cpus, each.collect(), seconds.collect())
}

pub const OPTIONS: Options = Options { seeds: 2, jobs: 2 };

pub fn policy(name: &str, toml: &str) -> Policy {
    Policy {
        name: name.to_owned(),
        config: Config::from_text(Path::new(name), toml).unwrap_or_else(|e| panic!("{e}")),
    }
}

/// Replays; without policies under the terms that were recorded.
pub fn replay(recording: &Recording, policies: &[Policy]) -> ReplayView {
    let replay = Replay::new(recording, OPTIONS).unwrap();
    let arms = replay.arms(policies);
    replay.view(&arms, &|_| {}).unwrap()
}

pub fn value(figure: Option<FigureView>) -> f64 {
    figure.unwrap().value
}

pub fn used_in(arm: &ArmView, work: &str) -> f64 {
    let found = arm.works.iter().find(|one| one.name == work);
    found.unwrap_or_else(|| panic!("no {work}")).used_cpus
}

/// Shares of the machine agree within 5 % of the expected one, or half a hundredth of a CPU.
pub fn near(what: &str, got: f64, expected: f64) {
    let off = (got - expected).abs();
    println!(
        "{what}: {got:.3} for {expected:.3} ({:+.1} %)",
        (got / expected - 1.0) * 100.0
    );
    assert!(
        off <= 0.05 * expected + 0.005,
        "{what}: {got} is not {expected}"
    );
}
