//! The report on runs of a scenario (`tidegate-lab sim`), in the lab's form.
//!
//! Everything in it is computed from the outcomes' integers in one order, so the same runs give the same bytes.

mod plots;

use serde_json::{Map, Value, json};

use tidegate_sim::outcome::{GroupOutcome, Outcome};
use tidegate_sim::scenario::Scenario;
use tidegate_sim::{Class, Histogram, Scheduler};

use crate::LabError;
use crate::report::{Report, Subject, Table, num, row};
use crate::runners::sim::contention_words;
use crate::runners::{Machine, Simulated};

const MS: f64 = 1e6;
const S: f64 = 1e9;

/// One report on all runs of a scenario; more than one run is a sweep.
///
/// # Errors
/// A plot that cannot be drawn.
pub fn report(
    scenario: &Scenario,
    outcomes: &[Outcome],
    command: &str,
) -> Result<Report, LabError> {
    let mut report = Report::new(
        "sim",
        Machine::Simulated(machine(scenario, outcomes, command)),
    );
    report.scenario = Some(Subject {
        name: scenario.name.clone(),
        about: scenario.about.clone(),
    });
    for outcome in outcomes {
        report.rows.extend(rows(outcome));
    }
    if let [outcome] = outcomes {
        report.tables = vec![latency_table(outcome), group_table(outcome)];
        report.plots = plots::all(outcome)?;
    } else {
        report.tables = sweep_tables(outcomes);
        report.plots = plots::of_sweep(outcomes)?;
    }
    for outcome in outcomes {
        for refusal in &outcome.refusals {
            let note = format!(
                "The machine refused an engine: {} {refusal}.",
                outcome.label()
            );
            report.notes.push(note);
        }
    }
    report.tables.retain(|table| !table.rows.is_empty());
    report.notes.push(
        "CPUs is the time on a CPU, work what it was worth at full speed; throttled counts periods. Latencies of an open loop count from the scheduled arrival. Slowdown by busy neighbours is the model's assumption \
         (see the coefficients above); scheduling, limits and decisions are the mechanisms themselves."
            .into(),
    );
    Ok(report)
}

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

fn latency_table(outcome: &Outcome) -> Table {
    let title = "What the workloads recorded (ms)";
    let columns = [
        "workload", "what", "group", "count", "mean", "p50", "p90", "p99", "p99.9", "max",
    ];
    let mut table = Table::new(title, &columns);
    for series in &outcome.series {
        let named = [
            series.workload.clone(),
            series.what.into(),
            series.group.clone(),
        ];
        table.push(named.into_iter().chain(statistics(&series.values)));
    }
    table
}

/// Count, mean, percentiles and maximum. What was never recorded stands there as a count of 0: an encoder that finished no
/// frame is what one is looking for.
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

fn group_table(outcome: &Outcome) -> Table {
    let title = format!(
        "Groups, over {} s, engine {} (idle: {:.2} % of the machine)",
        outcome.measured_ns as f64 / S,
        outcome.engine,
        idle_pct(outcome)
    );
    let columns = [
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
    let mut table = Table::new(&title, &columns);
    for group in &outcome.groups {
        let used = cpus_of(group, outcome);
        let none = || "-".to_owned();
        let wake = |percent| match group.wakeup.count() {
            0 => none(),
            _ => format!("{:.1}", at(&group.wakeup, percent) as f64 / 1e3),
        };
        table.push([
            group.name.clone(),
            class(group.class).into(),
            format!("{used:.3}"),
            format!("{:.2}", used / f64::from(outcome.cpus) * 100.0),
            format!("{:.3}", group.work_ns as f64 / outcome.measured_ns as f64),
            format!("{:.2}", group.run_delay_ns as f64 / S),
            wake(50.0),
            wake(99.0),
            match group.periods {
                0 => none(),
                periods => format!("{} of {periods}", group.throttled_periods),
            },
            match group.periods {
                0 => none(),
                _ => format!("{:.3}", group.throttled_ns as f64 / S),
            },
            match group.periods {
                0 => none(),
                _ => group.bursts.to_string(),
            },
            match group.writes {
                0 => none(),
                writes => writes.to_string(),
            },
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

/// Of a sweep, one table for use and one for each recorded series.
fn sweep_tables(outcomes: &[Outcome]) -> Vec<Table> {
    let Some(first) = outcomes.first() else {
        return Vec::new();
    };
    let groups: Vec<&str> = first
        .groups
        .iter()
        .map(|group| group.name.as_str())
        .collect();
    let mut columns = vec!["run", "engine"];
    columns.extend(&groups);
    columns.push("idle, %");
    let mut use_table = Table::new("CPUs used by each group", &columns);
    for outcome in outcomes {
        let mut cells = vec![outcome.label(), outcome.engine.clone()];
        for name in &groups {
            let group = outcome.groups.iter().find(|group| group.name == *name);
            cells.push(group.map_or("-".into(), |group| {
                format!("{:.3}", cpus_of(group, outcome))
            }));
        }
        cells.push(format!("{:.2}", idle_pct(outcome)));
        use_table.push(cells);
    }
    let mut tables = vec![use_table];
    for series in &first.series {
        let title = format!("{}.{} (ms)", series.workload, series.what);
        let columns = ["run", "count", "mean", "p50", "p90", "p99", "p99.9", "max"];
        let mut table = Table::new(&title, &columns);
        for outcome in outcomes {
            let same = outcome
                .series
                .iter()
                .find(|one| one.workload == series.workload && one.what == series.what);
            let Some(same) = same else {
                continue;
            };
            let label = std::iter::once(outcome.label());
            table.push(label.chain(statistics(&same.values)));
        }
        tables.push(table);
    }
    tables
}

/// Every figure, and both kinds of histograms, for programs.
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
        })));
        for (what, histogram, unit) in [
            ("wakeup_us", &group.wakeup, 1e3),
            ("window_cpus", &group.usage_ucpu, 1e6),
        ] {
            for (up_to, count) in coarse(histogram) {
                add(row(json!({
                    "kind": "histogram", "group": group.name, "what": what,
                    "up_to": num(up_to as f64 / unit), "count": count,
                })));
            }
        }
    }
    rows
}

fn us(ns: u64) -> Value {
    num(ns as f64 / 1e3)
}

/// Four buckets an octave: each one's upper end and its count.
fn coarse(histogram: &Histogram) -> Vec<(u64, u64)> {
    let mut coarse: Vec<(u64, u64)> = Vec::new();
    for (value, count) in histogram.buckets() {
        let octave = value.max(4).ilog2();
        let quarter = 1_u64 << (octave - 2);
        let up_to = (value / quarter)
            .saturating_mul(quarter)
            .saturating_add(quarter - 1);
        match coarse.last_mut() {
            Some(last) if last.0 == up_to => last.1 += count,
            _ => coarse.push((up_to, count)),
        }
    }
    coarse
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coarse_buckets_keep_every_count() {
        let mut histogram = Histogram::new();
        for value in [0, 1, 3, 4, 5, 100, 101, 127, 128, 1_000_000] {
            histogram.record(value);
        }
        let coarse = coarse(&histogram);
        assert_eq!(coarse.iter().map(|bucket| bucket.1).sum::<u64>(), 10);
        assert!(coarse.is_sorted_by(|a, b| a.0 < b.0), "{coarse:?}");
        assert!(coarse.contains(&(111, 2)) && coarse.contains(&(127, 1)));
    }
}
