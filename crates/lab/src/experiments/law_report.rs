//! What `tidegate lab law` makes of its windows.

use serde_json::json;

use super::law::{HEADROOM_PCT, TOLERANCE_PCT, Varying};
use super::law_rows::{Constant, least_when_quiet};
use super::{LOUD_PCT, Setup, num, row};
use crate::report::{Headline, Met, Report, Table, bars, plots};
use crate::{LabError, stats};

fn constant_table(constant: &[Constant]) -> Table {
    let mut table = Table::new(
        "Constant main, headroom 30 % (percent of the machine)",
        &[
            "main asked",
            "main",
            "other",
            "side",
            "published: side",
            "idle",
            "published: idle",
            "due",
            "off by",
            "reclaim",
            "writes/s",
            "agent, % of a CPU",
            "steal",
        ],
    );
    for c in constant {
        let s = &c.shares;
        let [seed_side, seed_idle] = c.row.seed_cells();
        table.push([
            c.row.label(),
            format!("{:.1}", s.main_pct),
            format!("{:.1}", s.other_pct),
            format!("{:.1}", s.side_pct),
            seed_side,
            format!("{:.1}", s.idle_pct),
            seed_idle,
            format!("{:.1}", c.expected_idle),
            format!("{:+.2}", c.off_points()),
            format!("{:.1} %", c.reclaim_pct),
            format!("{:.1}", c.quota_writes),
            format!("{:.2}", s.agent_cpu_pct),
            format!("{:.1} %", s.steal_pct),
        ]);
    }
    table
}

fn varying_table(varying: &[Varying]) -> Table {
    let mut table = Table::new(
        "Varying main, headroom 30 %: every second, looked at each 100 ms",
        &[
            "main",
            "mean main",
            "mean side",
            "mean other",
            "mean idle",
            "idle in the worst second",
            "against due",
        ],
    );
    for v in varying {
        table.push([
            v.name.to_string(),
            format!("{:.1}", v.mean.main_pct),
            format!("{:.1}", v.mean.side_pct),
            format!("{:.1}", v.mean.other_pct),
            format!("{:.1}", v.mean.idle_pct),
            format!("{:.1}", v.worst_idle),
            format!("{:+.2}", v.worst_points),
        ]);
    }
    table
}

fn headline(constant: &[Constant], varying: &[Varying]) -> Vec<Headline> {
    let worst = constant.iter().map(|c| c.off_points().abs());
    let worst = worst.fold(0.0, f64::max);
    let quiet = least_when_quiet(constant.iter());
    let reclaim: Vec<f64> = constant
        .iter()
        .filter(|c| c.row.seed.is_some() && c.row.main_pct <= 60)
        .map(|c| c.reclaim_pct)
        .collect();
    let least = reclaim.iter().copied().fold(f64::INFINITY, f64::min);
    let at_floor = constant.iter().filter(|c| c.row.is_at_floor());
    let (side_least, side_most) = at_floor
        .map(|c| c.shares.side_pct)
        .fold((f64::INFINITY, 0.0), |(a, b), s| {
            (f64::min(a, s), f64::max(b, s))
        });
    let writes: Vec<f64> = constant.iter().map(|c| c.quota_writes).collect();
    let writes = writes.iter().copied().fold(0.0, f64::max);
    let agent: Vec<f64> = constant.iter().map(|c| c.shares.agent_cpu_pct).collect();
    let agent = stats::mean(&agent).unwrap_or(f64::NAN);
    let second = varying
        .iter()
        .map(|v| v.worst_points)
        .fold(f64::INFINITY, f64::min);
    let mut lines = vec![
        Headline::new(
            "idle against due, constant main, worst row",
            worst,
            "points",
        )
        .target("≤ 1", Met::of(worst <= 1.0)),
        Headline::new(
            "idle against due, varying main, worst second",
            second,
            "points",
        )
        .target("≥ −1", Met::of(second >= -1.0)),
        Headline::new("reclaim at 0 and 1 % main, worst row", quiet, "%")
            .target("≥ 98", Met::judged(quiet, quiet >= 98.0)),
        Headline::new("reclaim at 30–60 % main, worst row", least, "%")
            .target("≥ 95", Met::of(least >= 95.0)),
        Headline::new(
            "side at 70 and 80 % main (tolerance 1 %), least",
            side_least,
            "%",
        )
        .target("≥ 0.95", Met::of(side_least >= 0.95 * TOLERANCE_PCT)),
        Headline::new(
            "side at 70 and 80 % main (tolerance 1 %), most",
            side_most,
            "%",
        )
        .target("≤ 2", Met::of(side_most <= TOLERANCE_PCT + 1.0)),
        Headline::new(
            "quota writes in steady state, worst row",
            writes,
            "per second",
        )
        .target("≤ 5", Met::of(writes <= 5.0)),
        Headline::new("agent's cost", agent, "% of one CPU").target("≤ 0.5", Met::of(agent <= 0.5)),
    ];
    if loudest(constant, varying) > LOUD_PCT {
        // With the machine taken by others, nothing is due and every target is met or missed idly.
        lines.iter_mut().for_each(|h| h.met = Met::Unknown);
    }
    lines
}

/// What other programs used at most.
fn loudest(constant: &[Constant], varying: &[Varying]) -> f64 {
    let constant = constant.iter().map(|c| c.shares.other_pct);
    constant
        .chain(varying.iter().map(|v| v.mean.other_pct))
        .fold(0.0, f64::max)
}

/// Builds the report.
pub fn report(
    setup: Setup,
    constant: &[Constant],
    varying: &[Varying],
    sensing: &str,
) -> Result<Report, LabError> {
    let cpus = setup.machine.cpus;
    let mut report = Report::new("law", setup.machine);
    report.notes.push(format!(
        "Sensing: {sensing}. Due is what the terms ask: the headroom, or what main, the rest and the \
         tolerance (1 %) leave. Other programs count as main, as in the law. Side is a burner of one \
         thread a CPU. Read from the threads' own clocks and the root group, not from the agent."
    ));
    let loudest = loudest(constant, varying);
    if loudest > LOUD_PCT {
        report.notes.push(format!(
            "Other programs used up to {loudest:.0} % of the machine, so targets are not judged: run it \
             again on a quiet machine."
        ));
    }
    for c in constant {
        let s = &c.shares;
        report.rows.push(row(json!({
            "kind": "constant", "main_asked_pct": c.row.main_pct, "main_pct": num(s.main_pct),
            "side_threads": c.row.hogs.threads(cpus), "side_pct": num(s.side_pct), "idle_pct": num(s.idle_pct),
            "published_side_pct": c.row.seed.map(|seed| seed.side_pct), "published_idle_pct": c.row.seed.map(|seed| seed.idle_pct),
            "other_pct": num(s.other_pct),
            "due_idle_pct": num(c.expected_idle), "reclaim_pct": num(c.reclaim_pct),
            "quota_writes_per_second": num(c.quota_writes), "agent_cpu_pct": num(s.agent_cpu_pct),
            "steal_pct": num(s.steal_pct), "seconds": num(s.seconds), "sensing": sensing,
        })));
    }
    for v in varying {
        report.rows.push(row(json!({
            "kind": "varying", "pattern": v.name, "main_pct": num(v.mean.main_pct),
            "side_pct": num(v.mean.side_pct), "idle_pct": num(v.mean.idle_pct), "other_pct": num(v.mean.other_pct),
            "worst_second_idle_pct": num(v.worst_idle), "worst_second_points": num(v.worst_points),
            "steal_pct": num(v.mean.steal_pct), "seconds": num(v.mean.seconds), "sensing": sensing,
        })));
    }
    report.headline = headline(constant, varying);
    report.tables = vec![constant_table(constant), varying_table(varying)];
    report.plots.push(bars::shares(
        "Who has the machine, main at 0…80 %",
        "Idle (the top of each bar) stays at 30 % of the machine until main alone leaves less.",
        &constant
            .iter()
            .map(|c| {
                let s = &c.shares;
                (
                    c.row.label(),
                    [s.main_pct, s.side_pct, s.other_pct, s.idle_pct],
                )
            })
            .collect::<Vec<_>>(),
        100.0 - HEADROOM_PCT,
    )?);
    for v in varying {
        report
            .plots
            .push(varying_plot(&format!("Main as a {}", v.name), v)?);
    }
    Ok(report)
}

/// Who had the machine while main varied, second by second.
pub fn varying_plot(title: &str, v: &Varying) -> Result<plots::Plot, LabError> {
    let line = |i: usize| v.trace.iter().map(|r| (r[0], r[i])).collect::<Vec<_>>();
    let end = v.trace.last().map_or(1.0, |r| r[0]);
    plots::Lines::new(title, "time, s", "percent of the machine, over 1 s")
        .see("Side mirrors main; idle does not fall below 30 % while main leaves that much.")
        .range(0.0..end, 0.0..100.0)
        .series("main", 0, line(1))
        .series("side", 1, line(2))
        .series("idle", 2, line(3))
        .level("asked", HEADROOM_PCT)
        .draw()
}
