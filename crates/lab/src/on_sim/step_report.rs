//! What `tidegate lab step --on sim` makes of its steps.

use serde_json::json;

use super::control::{Control, allowance_pct};
use super::stage::Stage;
use super::step::{Outcome, config};
use crate::LabError;
use crate::experiments::step::{HIGH_PCT, LOW_PCT};
use crate::experiments::{num, row};
use crate::report::{Headline, Met, Report, Table, bars, plots};
use crate::stats::{bootstrap95, median, most, quantile, with_interval};

fn of(outcomes: &[Outcome], cpus: u32, control: Control, f: impl Fn(&Outcome) -> f64) -> Vec<f64> {
    let chosen = outcomes
        .iter()
        .filter(|o| o.cell.cpus == cpus && o.cell.control == control && o.valid);
    chosen.map(f).collect()
}

fn controls(outcomes: &[Outcome]) -> Vec<Control> {
    let mut all = Vec::new();
    for o in outcomes {
        if !all.contains(&o.cell.control) {
            all.push(o.cell.control);
        }
    }
    all
}

/// The target of the settle time, ms.
fn target_ms(control: Control) -> Option<f64> {
    match control {
        Control::Ext => Some(2.0),
        Control::KnobsBpf => Some(20.0),
        Control::KnobsUsage => Some(60.0),
        _ => None,
    }
}

/// Builds the report.
pub fn report(stage: &Stage<'_>, sizes: &[u32], outcomes: &[Outcome]) -> Result<Report, LabError> {
    let example = config(sizes[0], stage.options.seed);
    let mut report = Report::new(
        "step",
        stage.bed(sizes, &example, "EEVDF; ext for its own steps"),
    );
    for o in outcomes {
        report.rows.push(row(json!({
            "controller": o.cell.control.key(), "cpus": o.cell.cpus, "step": o.cell.number + 1,
            "settle_ms": num(o.down.settle_ms), "reaction_ms": num(o.down.reaction_ms),
            "above_points": num(o.down.over_points), "below_points": num(o.down.under_points),
            "side_before_pct": num(o.down.old_pct), "give_back_ms": num(o.give_back_ms), "valid": o.valid,
        })));
    }
    for &cpus in sizes {
        report.headline.extend(headline(outcomes, cpus));
        report.tables.push(table(outcomes, cpus));
    }
    let shown = sizes[0];
    report.plots.push(trace_plot(outcomes, shown)?);
    let strips: Vec<(String, Vec<f64>)> = controls(outcomes)
        .into_iter()
        .map(|c| {
            (
                c.label().to_string(),
                of(outcomes, shown, c, |o| o.down.settle_ms),
            )
        })
        .filter(|(_, v)| !v.is_empty())
        .collect();
    report.plots.push(bars::strips(
        &format!("Time until side has settled, {shown} CPUs"),
        "Each dot is one step, the bar is the median; the dashed lines are the targets of 2, 20 and 60 ms.",
        "ms after the step (logarithmic)",
        &strips,
        &[2.0, 20.0, 60.0],
    )?);
    let invalid = outcomes.iter().filter(|o| !o.valid).count();
    if invalid > 0 {
        report.notes.push(format!(
            "{invalid} of {} steps do not count: side was more than 10 points off its allowance before the step.",
            outcomes.len()
        ));
    }
    report.notes.push(
        "Settled: the least t for which side's mean rate over [t, t + 20 ms] and over [t, t + 200 ms] is \
         within 5 points of its new allowance by that controller's own law. Reaction: side's CPU above the new \
         allowance over the first second, over the drop. The published laws start in their steady state. \
         Mechanism: when each controller looks, what it decides and writes, and what cpu.max makes of the write. \
         The model's: the step itself (every CPU's thread within 2 ms), exact counters for the published laws \
         (kinder than the ticks that they read), and no contention."
            .into(),
    );
    Ok(report)
}

fn headline(outcomes: &[Outcome], cpus: u32) -> Vec<Headline> {
    let mut lines = Vec::new();
    for control in controls(outcomes) {
        let settle = of(outcomes, cpus, control, |o| o.down.settle_ms);
        let m = median(&settle).unwrap_or(f64::NAN);
        let name = format!(
            "main's step to side settled, {cpus} CPUs: {}",
            control.label()
        );
        let interval = bootstrap95(&settle, 1, median).filter(|(_, b)| b.is_finite());
        let h = Headline::new(&name, m, "ms").interval(interval);
        lines.push(match target_ms(control) {
            // No step that counts is no pass.
            Some(limit) => h.target(&format!("≤ {limit}"), Met::of(m <= limit)),
            _ => h,
        });
    }
    lines
}

fn table(outcomes: &[Outcome], cpus: u32) -> Table {
    let title = format!(
        "Main steps from {LOW_PCT:.0} to {HIGH_PCT:.0} % of {cpus} CPUs and back (medians, 95 % intervals)"
    );
    let mut t = Table::new(
        &title,
        &[
            "controller",
            "steps",
            "new allowance, %",
            "settled, ms",
            "worst",
            "reaction, ms",
            "above after, points",
            "below after, points",
            "given back, ms",
        ],
    );
    for control in controls(outcomes) {
        let all = |f: fn(&Outcome) -> f64| of(outcomes, cpus, control, f);
        let settle = all(|o| o.down.settle_ms);
        let middle = |f| median(&all(f)).map_or("-".into(), |v| format!("{v:.1}"));
        t.push([
            control.label().to_string(),
            settle.len().to_string(),
            format!("{:.1}", allowance_pct(control, cpus, HIGH_PCT)),
            with_median(&settle),
            ms(most(settle.iter().copied())),
            with_median(&all(|o| o.down.reaction_ms)),
            middle(|o| o.down.over_points),
            middle(|o| o.down.under_points),
            with_median(&all(|o| o.give_back_ms)),
        ]);
    }
    t
}

fn ms(value: f64) -> String {
    if value.is_finite() {
        format!("{value:.0}")
    } else {
        "not seen".into()
    }
}

fn with_median(values: &[f64]) -> String {
    match median(values) {
        None => "-".into(),
        Some(m) if !m.is_finite() => "not seen".into(),
        Some(m) => {
            let interval = bootstrap95(values, 1, median).filter(|(_, b)| b.is_finite());
            with_interval(m, interval, usize::from(m < 10.0))
        }
    }
}

/// The median of every controller's trace, bin by bin.
fn trace_plot(outcomes: &[Outcome], cpus: u32) -> Result<plots::Plot, LabError> {
    let title = format!("Side's CPU around main's step up, {cpus} CPUs");
    let mut plot = plots::Lines::new(
        &title,
        "time after the step, ms",
        "side, percent of the machine",
    )
    .see("At 0 main steps up; the sooner a line falls to its floor, the less main suffers.")
    .range(-200.0..1500.0, 0.0..75.0);
    for (i, control) in controls(outcomes).into_iter().enumerate() {
        let traces: Vec<&[(f64, f64)]> = outcomes
            .iter()
            .filter(|o| o.cell.cpus == cpus && o.cell.control == control && o.valid)
            .map(|o| o.trace.as_slice())
            .collect();
        let length = traces.iter().map(|t| t.len()).min().unwrap_or(0);
        let points: Vec<(f64, f64)> = (0..length)
            .filter_map(|k| {
                let values: Vec<f64> = traces.iter().map(|t| t[k].1).collect();
                Some((traces[0][k].0, quantile(&values, 0.5)?))
            })
            .collect();
        if !points.is_empty() {
            plot = plot.series(control.label(), i, points);
        }
    }
    plot.draw()
}
