//! What `tidegate lab law --on sim` makes of its cells.

use serde_json::json;

use super::control::Control;
use super::law::{Cell, Outcome};
use super::stage::{Stage, plain};
use crate::LabError;
use crate::experiments::law::{HEADROOM_PCT, Varying};
use crate::experiments::law_report::varying_plot;
use crate::experiments::law_rows::{Constant, least_when_quiet};
use crate::experiments::{num, row};
use crate::report::{Headline, Met, Report, Table, bars};
use crate::stats::{least, most};

/// Cells of one kind with what came of them.
struct Found<'a> {
    constant: Vec<(Cell, &'a Constant)>,
    varying: Vec<(Cell, &'a Varying)>,
}

impl<'a> Found<'a> {
    fn new(cells: &[Cell], outcomes: &'a [Outcome]) -> Self {
        let mut found = Found {
            constant: Vec::new(),
            varying: Vec::new(),
        };
        for (cell, outcome) in cells.iter().zip(outcomes) {
            match outcome {
                Outcome::Constant(c) => found.constant.push((*cell, c)),
                Outcome::Varying(v) => found.varying.push((*cell, v)),
            }
        }
        found
    }

    fn engines(&self) -> Vec<Control> {
        let mut engines: Vec<Control> = self.constant.iter().map(|(c, _)| c.control).collect();
        engines.dedup();
        engines
    }

    fn of(&self, control: Control) -> impl Iterator<Item = &(Cell, &'a Constant)> {
        self.constant
            .iter()
            .filter(move |(c, _)| c.control == control)
    }
}

/// Builds the report.
pub fn report(stage: &Stage<'_>, cells: &[Cell], outcomes: &[Outcome]) -> Result<Report, LabError> {
    let found = Found::new(cells, outcomes);
    let mut sizes: Vec<u32> = found.constant.iter().map(|(c, _)| c.cpus).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let bed = stage.bed(
        &sizes,
        &plain(sizes[0], stage.options.seed),
        "EEVDF; ext for its own rows",
    );
    let mut report = Report::new("law", bed);
    for (cell, c) in &found.constant {
        let s = &c.shares;
        report.rows.push(row(json!({
            "kind": "constant", "engine": cell.control.key(), "cpus": cell.cpus,
            "main_asked_pct": c.row.main_pct, "main_pct": num(s.main_pct),
            "side_threads": c.row.hogs.threads(cell.cpus as usize), "side_pct": num(s.side_pct), "idle_pct": num(s.idle_pct),
            "published_side_pct": c.row.seed.map(|seed| seed.side_pct), "published_idle_pct": c.row.seed.map(|seed| seed.idle_pct),
            "due_idle_pct": num(c.expected_idle), "reclaim_pct": num(c.reclaim_pct),
            "quota_writes_per_second": num(c.quota_writes), "seconds": num(s.seconds),
        })));
    }
    for (cell, v) in &found.varying {
        report.rows.push(row(json!({
            "kind": "varying", "engine": cell.control.key(), "cpus": cell.cpus, "pattern": v.name,
            "main_pct": num(v.mean.main_pct), "side_pct": num(v.mean.side_pct), "idle_pct": num(v.mean.idle_pct),
            "worst_second_idle_pct": num(v.worst_idle), "worst_second_points": num(v.worst_points),
            "seconds": num(v.mean.seconds),
        })));
    }
    for control in found.engines() {
        report.headline.extend(headline(&found, control));
    }
    for &cpus in &sizes {
        report.tables.push(constant_table(&found, cpus));
    }
    report.tables.push(varying_table(&found));
    add_plots(&mut report, &found, sizes[sizes.len() / 2])?;
    report.notes.push(
        "Headroom 30 %; side has one thread a CPU that always wants more; main has a thread on each CPU that \
         holds its level over each 2 ms. Due is what the terms ask: the headroom, or what main and the tolerance \
         (1 %) leave. Mechanism: Tidegate's own control step with its sensing and its writes (knobs) or its \
         decisions at each switch (ext), against cpu.max as the kernel does it (a write refills, debts are \
         forgiven, enforcement waits for a tick). The model's: no other programs, no steal, exact clocks, and no \
         contention, which the host's runs of the same experiment have."
            .into(),
    );
    Ok(report)
}

fn off(c: &Constant) -> f64 {
    c.off_points().abs()
}

fn headline(found: &Found<'_>, control: Control) -> Vec<Headline> {
    let label = control.label();
    let worst = most(found.of(control).map(|(_, c)| off(c)));
    // The contract is ± 1 point; ext decides at each switch, and is held to half of it.
    let bound = if control == Control::Ext { 0.5 } else { 1.0 };
    let mut lines = vec![
        Headline::new(
            &format!("idle against due, constant main, worst row: {label}"),
            worst,
            "points",
        )
        .target(&format!("≤ {bound}"), Met::of(worst <= bound)),
    ];
    let second = found.varying.iter().filter(|(c, _)| c.control == control);
    let second = least(second.map(|(_, v)| v.worst_points));
    lines.push(
        Headline::new(
            &format!("idle against due, varying main, worst second: {label}"),
            second,
            "points",
        )
        .target("≥ −1", Met::of(second >= -1.0)),
    );
    let reclaim = found
        .of(control)
        .filter(|(_, c)| c.row.seed.is_some() && c.row.main_pct <= 60);
    let reclaim = least(reclaim.map(|(_, c)| c.reclaim_pct));
    lines.push(
        Headline::new(
            &format!("reclaim at 30–60 % main, worst row: {label}"),
            reclaim,
            "%",
        )
        .target("≥ 95", Met::of(reclaim >= 95.0)),
    );
    let quiet = least_when_quiet(found.of(control).map(|(_, c)| *c));
    lines.push(
        Headline::new(
            &format!("reclaim at 0 and 1 % main, worst row: {label}"),
            quiet,
            "%",
        )
        .target("≥ 98", Met::judged(quiet, quiet >= 98.0)),
    );
    let floor = found.of(control).filter(|(_, c)| c.row.is_at_floor());
    let floor: Vec<f64> = floor.map(|(_, c)| c.shares.side_pct).collect();
    let (low, high) = (least(floor.iter().copied()), most(floor));
    lines.push(
        Headline::new(
            &format!("side at 70 and 80 % main, least: {label}"),
            low,
            "%",
        )
        .target("≥ 0.95", Met::of(low >= 0.95)),
    );
    lines.push(
        Headline::new(
            &format!("side at 70 and 80 % main, most: {label}"),
            high,
            "%",
        )
        .target("≤ 2", Met::of(high <= 2.0)),
    );
    if control != Control::Ext {
        let writes = most(found.of(control).map(|(_, c)| c.quota_writes));
        lines.push(
            Headline::new(
                &format!("quota writes in steady state, worst row: {label}"),
                writes,
                "per second",
            )
            .target("≤ 5", Met::of(writes <= 5.0)),
        );
    }
    lines
}

fn constant_table(found: &Found<'_>, cpus: u32) -> Table {
    let mut t = Table::new(
        &format!("Constant main, headroom 30 %, {cpus} CPUs (percent of the machine)"),
        &[
            "engine",
            "main asked",
            "main",
            "side",
            "published: side",
            "idle",
            "published: idle",
            "due",
            "off by",
            "reclaim",
            "writes/s",
        ],
    );
    for (cell, c) in found.constant.iter().filter(|(cell, _)| cell.cpus == cpus) {
        let s = &c.shares;
        let [seed_side, seed_idle] = c.row.seed_cells();
        t.push([
            cell.control.label().to_string(),
            c.row.label(),
            format!("{:.2}", s.main_pct),
            format!("{:.2}", s.side_pct),
            seed_side,
            format!("{:.2}", s.idle_pct),
            seed_idle,
            format!("{:.2}", c.expected_idle),
            format!("{:+.2}", c.off_points()),
            format!("{:.1} %", c.reclaim_pct),
            format!("{:.1}", c.quota_writes),
        ]);
    }
    t
}

fn varying_table(found: &Found<'_>) -> Table {
    let mut t = Table::new(
        "Varying main, headroom 30 %: every second, looked at each 100 ms",
        &[
            "engine",
            "CPUs",
            "main",
            "mean main",
            "mean side",
            "mean idle",
            "idle in the worst second",
            "against due",
        ],
    );
    for (cell, v) in &found.varying {
        t.push([
            cell.control.label().to_string(),
            cell.cpus.to_string(),
            v.name.to_string(),
            format!("{:.1}", v.mean.main_pct),
            format!("{:.1}", v.mean.side_pct),
            format!("{:.1}", v.mean.idle_pct),
            format!("{:.1}", v.worst_idle),
            format!("{:+.2}", v.worst_points),
        ]);
    }
    t
}

fn add_plots(report: &mut Report, found: &Found<'_>, cpus: u32) -> Result<(), LabError> {
    for control in found.engines() {
        let chosen = found.of(control).filter(|(cell, _)| cell.cpus == cpus);
        let parts: Vec<(String, [f64; 4])> = chosen
            .map(|(_, c)| {
                let s = &c.shares;
                let parts = [s.main_pct, s.side_pct, s.other_pct, s.idle_pct];
                (c.row.label(), parts)
            })
            .collect();
        report.plots.push(bars::shares(
            &format!("Who has the machine, {cpus} CPUs, {}", control.label()),
            "Idle (the top of each bar) stays at 30 % of the machine until main alone leaves less.",
            &parts,
            100.0 - HEADROOM_PCT,
        )?);
    }
    for (cell, v) in &found.varying {
        let title = format!("Main as a {}: {}", v.name, cell.control.label());
        report.plots.push(varying_plot(&title, v)?);
    }
    Ok(())
}
