//! The report on runs of a scenario (`tidegate-lab sim`), in the lab's form.
//!
//! Everything in it is computed from the outcomes' integers in one order, so the same runs give the
//! same bytes.

use serde_json::{Map, Value, json};

use tidegate_sim::outcome::{GroupOutcome, Outcome, SeriesOutcome};
use tidegate_sim::scenario::Scenario;
use tidegate_sim::{Class, Histogram, Scheduler};

use crate::machine::{Machine, Simulated};
use crate::report::plots::dots;
use crate::report::{Report, Subject, Table, num, row};
use crate::runners::sim::contention_words;

const MS: f64 = 1e6;
const S: f64 = 1e9;

/// One report on all runs of a scenario; more than one run is a sweep.
pub fn report(scenario: &Scenario, outcomes: &[Outcome], command: &str) -> Report {
    let machine = machine(scenario, outcomes, command);
    let mut report = Report::new("sim", Machine::Simulated(machine));
    report.scenario = Some(Subject {
        name: scenario.name.clone(),
        about: scenario.about.clone(),
    });
    report.rows = outcomes.iter().flat_map(rows).collect();
    report.tables = vec![latencies(outcomes), groups(outcomes)];
    report.tables.retain(|table| !table.rows.is_empty());
    report.tables.iter_mut().for_each(Table::drop_empty_columns);
    let drawn = series(outcomes).into_iter().map(|(outcome, series)| {
        let name = format!("{}.{}", series.workload, series.what);
        let values = CURVE.map(|percent| at(&series.values, percent) as f64 / MS);
        (format!("{} {name}", outcome.label()), values.to_vec())
    });
    report.plots.extend(dots(
        "What the workloads recorded, ms",
        "Percentiles 50, 90, 99, 99.9 and 100; the bar is the 99th.",
        &drawn.collect::<Vec<_>>(),
    ));
    for outcome in outcomes {
        let engine = &outcome.engine;
        let refused = |refusal| {
            format!(
                "The machine refused {engine}: {} {refusal}.",
                outcome.label()
            )
        };
        report.notes.extend(outcome.refusals.iter().map(refused));
    }
    report.notes.push(
        "CPUs is the time on a CPU, work what it was worth at full speed; throttled counts periods. Latencies of an open \
         loop count from the scheduled arrival. Slowdown by busy neighbours is the model's assumption (see the \
         coefficients above); scheduling, limits and decisions are the mechanisms themselves."
            .into(),
    );
    report
}

const CURVE: [f64; 5] = [50.0, 90.0, 99.0, 99.9, 100.0];

fn machine(scenario: &Scenario, outcomes: &[Outcome], command: &str) -> Simulated {
    let mut cpus: Vec<u32> = outcomes.iter().map(|outcome| outcome.cpus).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let topology = &scenario.machine.topology;
    Simulated {
        cpus,
        threads_per_core: topology.threads_per_core(),
        cpus_per_llc: topology.cpus_per_llc(),
        scheduler: match &scenario.machine.scheduler {
            Scheduler::Eevdf(_) => "EEVDF",
            Scheduler::Cfs(_) => "CFS",
        }
        .into(),
        tick_us: scenario.machine.tick_ns / 1_000,
        contention: contention_words(&scenario.machine.contention),
        seed: scenario.machine.seed,
        command: command.into(),
    }
}

fn cpus_of(group: &GroupOutcome, outcome: &Outcome) -> f64 {
    group.usage_ns as f64 / outcome.measured_ns as f64
}

fn idle_pct(outcome: &Outcome) -> f64 {
    outcome.idle_ns as f64 / outcome.capacity_ns() as f64 * 100.0
}

/// Times in ms, as short as they can be told apart.
fn ms(ns: u64) -> String {
    match ns as f64 / MS {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 1.0 => format!("{v:.2}"),
        v => format!("{v:.4}"),
    }
}

fn at(values: &Histogram, percent: f64) -> u64 {
    values.percentile_ns((percent * 10_000.0) as u32)
}

/// Series of all runs; those of one name are next to each other.
fn series(outcomes: &[Outcome]) -> Vec<(&Outcome, &SeriesOutcome)> {
    let count = outcomes.first().map_or(0, |first| first.series.len());
    let of = |index: usize| {
        let runs = outcomes.iter();
        runs.filter_map(move |outcome| Some((outcome, outcome.series.get(index)?)))
    };
    (0..count).flat_map(of).collect()
}

fn latencies(outcomes: &[Outcome]) -> Table {
    let columns = [
        "run", "workload", "what", "group", "count", "mean", "p50", "p90", "p99", "p99.9", "max",
    ];
    let mut table = Table::new("What the workloads recorded (ms)", &columns);
    for (outcome, series) in series(outcomes) {
        let named = [
            outcome.label(),
            series.workload.clone(),
            series.what.into(),
            series.group.clone(),
        ];
        table.push(named.into_iter().chain(statistics(&series.values)));
    }
    table
}

/// Count, mean, percentiles and maximum. What was never recorded stands there as a count of 0: an
/// encoder that finished no frame is what one is looking for.
fn statistics(values: &Histogram) -> [String; 7] {
    if values.count() == 0 {
        return ["0", "-", "-", "-", "-", "-", "-"].map(str::to_owned);
    }
    [
        values.count().to_string(),
        ms(values.mean_ns()),
        ms(at(values, 50.0)),
        ms(at(values, 90.0)),
        ms(at(values, 99.0)),
        ms(at(values, 99.9)),
        ms(values.max_ns()),
    ]
}

fn groups(outcomes: &[Outcome]) -> Table {
    let columns = [
        "run",
        "engine",
        "group",
        "class",
        "CPUs",
        "% of machine",
        "work",
        "waits, s",
        "wake p50, us",
        "wake p99, us",
        "throttled",
        "throttled, s",
        "bursts",
        "writes",
    ];
    let mut table = Table::new("Groups", &columns);
    let count = outcomes.first().map_or(0, |first| first.groups.len());
    let of_group = |index: usize| {
        outcomes
            .iter()
            .filter_map(move |o| Some((o, o.groups.get(index)?)))
    };
    for (outcome, group) in (0..count).flat_map(of_group) {
        let used = cpus_of(group, outcome);
        let if_any = |any: u64, text: String| if any == 0 { "-".into() } else { text };
        let wake = |percent| {
            let us = at(&group.wakeup, percent) as f64 / 1e3;
            if_any(group.wakeup.count(), format!("{us:.1}"))
        };
        let periods = group.periods;
        table.push([
            outcome.label(),
            outcome.engine.clone(),
            group.name.clone(),
            class(group.class).into(),
            format!("{used:.3}"),
            format!("{:.2}", used / f64::from(outcome.cpus) * 100.0),
            format!("{:.3}", group.work_ns as f64 / outcome.measured_ns as f64),
            format!("{:.2}", group.run_delay_ns as f64 / S),
            wake(50.0),
            wake(99.0),
            if_any(periods, format!("{} of {periods}", group.throttled_periods)),
            if_any(periods, format!("{:.3}", group.throttled_ns as f64 / S)),
            if_any(periods, group.bursts.to_string()),
            if_any(group.writes, group.writes.to_string()),
        ]);
    }
    table
}

fn class(class: Class) -> &'static str {
    match class {
        Class::Main => "main",
        Class::Side => "side",
        Class::Neutral => "-",
    }
}

fn rows(outcome: &Outcome) -> Vec<Map<String, Value>> {
    let mut rows = Vec::new();
    let mut add = |mut value: Map<String, Value>| {
        let mut whole = row(
            json!({"run": outcome.label(), "engine": outcome.engine, "seed": outcome.seed, "cpus": outcome.cpus}),
        );
        whole.append(&mut value);
        rows.push(whole);
    };
    add(row(json!({
        "kind": "run", "measured_s": num(outcome.measured_ns as f64 / S), "events": outcome.events,
        "idle_pct": num(idle_pct(outcome)),
    })));
    for series in &outcome.series {
        let values = &series.values;
        add(row(json!({
            "kind": "series", "workload": series.workload, "what": series.what, "group": series.group,
            "count": values.count(), "mean_us": us(values.mean_ns()), "p50_us": us(at(values, 50.0)),
            "p90_us": us(at(values, 90.0)), "p99_us": us(at(values, 99.0)), "p999_us": us(at(values, 99.9)),
            "max_us": us(values.max_ns()),
        })));
    }
    for group in &outcome.groups {
        add(row(json!({
            "kind": "group", "group": group.name, "class": class(group.class), "used_cpus": num(cpus_of(group, outcome)),
            "work_cpus": num(group.work_ns as f64 / outcome.measured_ns as f64),
            "run_delay_s": num(group.run_delay_ns as f64 / S), "periods": group.periods,
            "throttled_periods": group.throttled_periods, "throttled_s": num(group.throttled_ns as f64 / S),
            "bursts": group.bursts, "burst_s": num(group.burst_ns as f64 / S), "writes": group.writes,
            "wakeup_p50_us": us(at(&group.wakeup, 50.0)), "wakeup_p99_us": us(at(&group.wakeup, 99.0)),
        })));
    }
    rows
}

fn us(ns: u64) -> Value {
    num(ns as f64 / 1e3)
}
