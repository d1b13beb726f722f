//! The report on the run of a scenario: what the workloads recorded, and what each group used.

use tidegate_sim::Class;
use tidegate_sim::outcome::{GroupOutcome, Outcome, SeriesOutcome};
use tidegate_sim::scenario::Scenario;

use crate::experiment::{Arm, Case, Figures, Metric, Part, Sample, metric, scaled};
use crate::machine::{Machine, Simulated};
use crate::report::build::groups;
use crate::report::{Report, Subject};
use crate::scene::{LATENCIES, Latency};

const SERIES: [Metric; 7] = [
    scaled("p99_us", "p99", 1e-3, 3),
    metric("count", "count", 0),
    scaled("avg_us", "mean", 1e-3, 3),
    scaled("p50_us", "p50", 1e-3, 3),
    scaled("p90_us", "p90", 1e-3, 3),
    scaled("p999_us", "p99.9", 1e-3, 3),
    scaled("max_us", "max", 1e-3, 3),
];
const GROUPS: [Metric; 10] = [
    metric("used_cpus", "CPUs", 3),
    scaled("used_ratio", "% of machine", 100.0, 2),
    metric("work_cpus", "work", 3),
    metric("run_delay_seconds", "waits, s", 2),
    metric("wakeup_p50_us", "wake p50, us", 1),
    metric("wakeup_p99_us", "wake p99, us", 1),
    scaled("throttled_periods_ratio", "periods throttled, %", 100.0, 1),
    metric("throttled_seconds", "throttled, s", 3),
    metric("bursts", "bursts", 0),
    metric("writes", "writes", 0),
];

pub fn report(scenario: &Scenario, outcome: &Outcome, command: &str) -> Report {
    let part = |key, title, metrics| Part::new(key, title, Vec::new(), |_, _| Vec::new(), metrics);
    let series = part("series", "What the workloads recorded (ms)", &SERIES);
    let used = part("group", "Groups", &GROUPS);
    let samples = samples(outcome);
    let model = &scenario.machine;
    let machine = Simulated::of(&[model], model.seed, command.into());
    let mut report = Report::new("sim", Machine::Simulated(machine));
    report.scenario = Some(Subject {
        name: scenario.name.clone(),
        about: scenario.about.clone(),
    });
    report.rows = samples.iter().map(Sample::row).collect();
    let all = [&series, &used].into_iter();
    for one in all.flat_map(|part| groups(part, &samples)) {
        report.tables.push(one.table());
    }
    let drawn = groups(&series, &samples);
    report
        .plots
        .extend(drawn.iter().filter_map(|one| one.plot()));
    let refusals = outcome.refusals.iter();
    let refused = |why| format!("The machine refused {}: {why}.", outcome.engine);
    report.notes.extend(refusals.map(refused));
    report.notes.push(
        "CPUs is the time on a CPU, work what it was worth at full speed. Latencies of an open \
         loop count from the scheduled arrival. Slowdown by busy neighbours is the model's \
         assumption (see the coefficients above); scheduling, limits and decisions are the \
         mechanisms themselves."
            .into(),
    );
    report
}

fn samples(outcome: &Outcome) -> Vec<Sample> {
    let sample = |part: &str, case: Case, figures| Sample {
        part: part.into(),
        case: case
            .with("engine", outcome.engine)
            .with("seed", outcome.seed)
            .with("cpus", outcome.cpus),
        arm: Arm::new("", outcome.engine),
        round: 0,
        figures,
    };
    let idle = outcome.idle_ns as f64 / outcome.capacity_ns() as f64;
    let run = Figures::default()
        .with("measured_seconds", outcome.measured_ns as f64 / 1e9)
        .with("events", outcome.events as f64)
        .with("idle_ratio", idle);
    let mut samples = vec![sample("run", Case::new("", ""), run)];
    for series in &outcome.series {
        let SeriesOutcome {
            workload,
            what,
            group,
            values,
        } = series;
        let case = Case::new("", format!("{workload}.{what}"))
            .with("workload", workload.clone())
            .with("what", *what)
            .with("group", group.clone());
        let figures = Figures::default().latency("", &Latency::of(values), &LATENCIES);
        let figures = figures.with("count", values.count() as f64);
        samples.push(sample("series", case, figures));
    }
    for group in &outcome.groups {
        let class = match group.class {
            Class::Main => "main",
            Class::Side => "side",
            Class::Neutral => "-",
        };
        let case = Case::new("", format!("{}, {class}", group.name))
            .with("group", group.name.clone())
            .with("class", class);
        samples.push(sample("group", case, usage(group, outcome)));
    }
    samples
}

fn usage(group: &GroupOutcome, outcome: &Outcome) -> Figures {
    let wall_ns = outcome.measured_ns as f64;
    let used_cpus = group.usage_ns as f64 / wall_ns;
    let wakeup = Latency::of(&group.wakeup);
    let figures = Figures::default()
        .with("used_cpus", used_cpus)
        .with("used_ratio", used_cpus / f64::from(outcome.cpus))
        .with("work_cpus", group.work_ns as f64 / wall_ns)
        .with("run_delay_seconds", group.run_delay_ns as f64 / 1e9)
        .latency("wakeup", &wakeup, &["p50", "p99"])
        .with("writes", group.writes as f64);
    let stat = group.stat;
    if stat.nr_periods == 0 {
        return figures;
    }
    let (periods, throttled) = (stat.nr_periods as f64, stat.nr_throttled as f64);
    figures
        .with("periods", periods)
        .with("throttled_periods", throttled)
        .with("throttled_periods_ratio", throttled / periods)
        .with("throttled_seconds", stat.throttled_ns as f64 / 1e9)
        .with("bursts", stat.nr_bursts as f64)
        .with("burst_seconds", stat.burst_ns as f64 / 1e9)
}
