//! The ext engine's statistics for people: a table of gates over a span, the headroom, and what callbacks cost.

use std::time::Duration;

use tidegate_ext::{CapStat, Delays, HeadroomStats, LimitStat, ProgramCost, Stats, WorkStat};

use super::{cpus, fit};

/// Gates in a table; those that use most come first.
const ROWS_MAX: usize = 20;
const NAME: usize = 27;

/// What is known of a group's name, by cgroup id.
pub type Names = std::collections::BTreeMap<u64, String>;

/// One line of the table.
struct Row {
    name: String,
    used_ns: u64,
    /// None: not told for this kind of row.
    delays: Option<Delays>,
    /// Periods, and those that ended throttled.
    periods: Option<(u64, u64)>,
    /// How long tasks were kept from running by a cap, added up.
    held_us: Option<u64>,
}

fn name_of(names: &Names, cgroup_id: u64) -> String {
    names
        .get(&cgroup_id)
        .cloned()
        .unwrap_or_else(|| format!("group {cgroup_id}"))
}

fn rest_row(name: &str, now: &WorkStat, before: &WorkStat) -> Row {
    let span = now.since(before);
    Row {
        name: name.to_owned(),
        used_ns: span.used_ns(),
        delays: Some(span.run_delay),
        periods: None,
        held_us: None,
    }
}

fn periods(now: &LimitStat, before: Option<&LimitStat>) -> (u64, u64) {
    let less = |of: fn(&LimitStat) -> u64| of(now).saturating_sub(before.map_or(0, of));
    (
        less(|limit| limit.nr_periods),
        less(|limit| limit.nr_throttled),
    )
}

fn held_us(now: &CapStat, before: Option<&CapStat>) -> u64 {
    now.throttled_us
        .saturating_sub(before.map_or(0, |cap| cap.throttled_us))
}

/// What was added since `before`, a row for each gate, each quota that is no gate's, each capped task, and the rest.
fn rows(now: &Stats, before: &Stats, names: &Names) -> Vec<Row> {
    let mut rows = Vec::new();
    for gate in &now.gates {
        let was = before
            .gates
            .iter()
            .find(|was| was.cgroup_id == gate.cgroup_id);
        let work = gate
            .work
            .since(&was.map(|was| was.work).unwrap_or_default());
        rows.push(Row {
            name: name_of(names, gate.cgroup_id),
            used_ns: work.used_ns(),
            delays: gate.counted.then_some(work.run_delay),
            periods: gate
                .quota
                .map(|quota| periods(&quota, was.and_then(|was| was.quota.as_ref()))),
            held_us: gate
                .cap
                .map(|cap| held_us(&cap, was.and_then(|was| was.cap.as_ref()))),
        });
    }
    for cap in now.caps.iter().filter(|cap| cap.pid != 0) {
        let was = before.caps.iter().find(|was| was.pid == cap.pid);
        let used_us = cap.used_us.saturating_sub(was.map_or(0, |was| was.used_us));
        rows.push(Row {
            name: format!("pid:{}", cap.pid),
            used_ns: used_us * 1_000,
            delays: None,
            periods: None,
            held_us: Some(held_us(cap, was)),
        });
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.used_ns));
    rows.truncate(ROWS_MAX);
    let (rest, was) = (&now.rest, &before.rest);
    let mut ungated = rest.main;
    let mut ungated_was = was.main;
    for (sum, others) in [
        (&mut ungated, [&rest.side, &rest.background]),
        (&mut ungated_was, [&was.side, &was.background]),
    ] {
        others.into_iter().for_each(|other| sum.add(other));
    }
    rows.push(rest_row("(no gate)", &ungated, &ungated_was));
    rows.push(rest_row("(kernel threads)", &rest.kernel, &was.kernel));
    rows
}

/// A short length of time.
pub fn short(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{:.1} us", ns as f64 / 1e3),
        10_000..10_000_000 => format!("{:.0} us", ns as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.0} ms", ns as f64 / 1e6),
        _ => format!("{:.0} s", ns as f64 / 1e9),
    }
}

/// The table; each line ends with a line break.
pub fn table(now: &Stats, before: &Stats, span: Duration, names: &Names) -> String {
    let span_s = span.as_secs_f64().max(1e-3);
    let mut text = format!(
        "{:NAME$}{:>8}{:>9}{:>9}{:>9}{:>10}{:>8}\n",
        "GATE", "CPUS", "WAKES/S", "P50", "P99", "THROTTLED", "HELD"
    );
    for row in rows(now, before, names) {
        let [wakes, p50, p99] = match row.delays {
            Some(delays) if delays.count() > 0 => [
                format!("{:.0}", delays.count() as f64 / span_s),
                short(delays.quantile_ns(500)),
                short(delays.quantile_ns(990)),
            ],
            Some(_) => ["0".to_owned(), "-".to_owned(), "-".to_owned()],
            None => ["-", "-", "-"].map(str::to_owned),
        };
        let throttled = match row.periods {
            Some((0, _)) => "0 %".to_owned(),
            Some((periods, throttled)) => {
                format!("{:.0} %", 100.0 * throttled as f64 / periods as f64)
            }
            None => "-".to_owned(),
        };
        let held = row
            .held_us
            .map_or("-".to_owned(), |us| cpus(us as f64 / 1e6 / span_s));
        let line = format!(
            "{:NAME$}{:>8}{wakes:>9}{p50:>9}{p99:>9}{throttled:>10}{held:>8}",
            fit(&row.name, NAME - 1),
            cpus(row.used_ns as f64 / 1e9 / span_s),
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    let more = now.gates.len().saturating_sub(ROWS_MAX);
    if more > 0 {
        text.push_str(&format!("and {more} gates that use less\n"));
    }
    text
}

/// The headroom's ledger, on one line.
pub fn headroom(stats: &HeadroomStats) -> String {
    let percent = |ucpu: u64| 100.0 * ucpu as f64 / stats.capacity_ucpu.max(1) as f64;
    format!(
        "headroom: idle {:.1} % of {:.1} % asked, side work may use {:.1} % ({})\n",
        percent(stats.idle_ucpu),
        percent(stats.asked_ucpu),
        percent(stats.allowance_ucpu),
        stats.reason,
    )
}

/// All limited groups on one line; nothing where there are none.
pub fn quotas(stats: &Stats) -> String {
    let groups = stats.limits.iter().filter(|limit| limit.quota_us.is_some());
    let sum = |of: fn(&LimitStat) -> u64| stats.limits.iter().map(of).sum::<u64>();
    let refused = match stats.limits_refused {
        0 => String::new(),
        refused => format!(", {refused} quotas not enforced for want of room"),
    };
    if stats.limits.is_empty() && refused.is_empty() {
        return String::new();
    }
    format!(
        "quotas: {} groups, {} of {} periods throttled, {} bursts, {} runs for the watchdog{refused}\n",
        groups.count(),
        sum(|limit| limit.nr_throttled),
        sum(|limit| limit.nr_periods),
        sum(|limit| limit.nr_bursts),
        sum(|limit| limit.min_runs),
    )
}

/// All caps on one line; nothing where there are none.
pub fn caps(stats: &Stats) -> String {
    if stats.caps.is_empty() {
        return String::new();
    }
    let sum = |of: fn(&CapStat) -> u64| stats.caps.iter().map(of).sum::<u64>();
    format!(
        "caps: {} with {} buckets, {} times out of one, {} runs for the watchdog\n",
        stats.caps.len(),
        sum(|cap| u64::from(cap.buckets)),
        sum(|cap| cap.throttles),
        sum(|cap| cap.min_runs),
    )
}

/// What the callbacks took, those that took most first.
pub fn cost(programs: &[ProgramCost], span: Duration) -> String {
    let mut called: Vec<&ProgramCost> = programs.iter().filter(|p| p.runs > 0).collect();
    called.sort_by_key(|program| std::cmp::Reverse(program.run_ns));
    let span_ns = (span.as_nanos() as f64).max(1e6);
    let mut text = format!(
        "{:NAME$}{:>12}{:>12}{:>14}\n",
        "CALLBACK", "CALLS", "NS A CALL", "% OF ONE CPU"
    );
    for program in called {
        text.push_str(&format!(
            "{:NAME$}{:>12}{:>12}{:>14.3}\n",
            program.name,
            program.runs,
            program.run_ns / program.runs,
            100.0 * program.run_ns as f64 / span_ns,
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_ext::{CpuStats, GateStat, GateTerms, RestStat};

    fn stats(used_ns: u64, nr_throttled: u64, delays: u64) -> Stats {
        let mut work = WorkStat {
            main_ns: used_ns,
            ..WorkStat::default()
        };
        work.run_delay.counts[4] = delays;
        work.run_delay.longest_ns = 12_000;
        let quota = LimitStat {
            nr_periods: 2 * nr_throttled,
            nr_throttled,
            ..LimitStat::default()
        };
        Stats {
            total: CpuStats::default(),
            limits: Vec::new(),
            limits_refused: 0,
            headroom: None,
            caps: vec![CapStat {
                pid: 4711,
                used_us: used_ns / 1_000,
                throttled_us: used_ns / 2_000,
                ..CapStat::default()
            }],
            gates: vec![GateStat {
                cgroup_id: 7,
                terms: GateTerms::default(),
                counted: true,
                work,
                quota: Some(quota),
                cap: None,
                min_runs: 0,
            }],
            rest: RestStat::default(),
            programs: Vec::new(),
        }
    }

    #[test]
    fn a_table_is_of_the_span_alone() {
        let names = Names::from([(7, "/web".to_owned())]);
        let (before, now) = (stats(1_000_000_000, 10, 50), stats(2_000_000_000, 20, 250));
        let text = table(&now, &before, Duration::from_secs(2), &names);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        assert_eq!(
            rows[1],
            [
                "/web", "0.50", "100", "12", "us", "12", "us", "50", "%", "-"
            ]
        );
        assert_eq!(rows[2], ["pid:4711", "0.50", "-", "-", "-", "-", "0.25"]);
        assert_eq!(rows[3][..3], ["(no", "gate)", "0.00"]);
        assert!(
            text.lines()
                .all(|line| line.chars().count() <= super::super::WIDTH)
        );
    }
}
