//! What `tidegate lab step` makes of its steps.

use serde_json::json;

use super::step::{Controller, HIGH_PCT, LOW_PCT, Step};
use super::{Setup, num, row};
use crate::LabError;
use crate::options::Sense;
use crate::report::{Headline, Met, Report, Table, bars, plots};
use crate::stats::{bootstrap95, median, most, quantile, with_interval};

const CONTROLLERS: [Controller; 5] = [
    Controller::Ext,
    Controller::Tidegate(Sense::Bpf),
    Controller::Tidegate(Sense::Usage),
    Controller::Sideloader,
    Controller::Koordlet,
];

fn of(steps: &[Step], controller: Controller, f: impl Fn(&Step) -> f64) -> Vec<f64> {
    steps
        .iter()
        .filter(|s| s.controller == controller && s.valid)
        .map(f)
        .collect()
}

fn given_back(steps: &[Step], controller: Controller) -> Vec<f64> {
    steps
        .iter()
        .filter(|s| s.controller == controller && s.valid)
        .filter_map(|s| s.give_back_ms)
        .collect()
}

fn ms(value: f64) -> String {
    if value.is_finite() {
        format!("{value:.0}")
    } else {
        "not seen".into()
    }
}

fn with_median(values: &[f64]) -> String {
    let Some(m) = median(values) else {
        return "-".into();
    };
    if !m.is_finite() {
        return "not seen".into();
    }
    let interval = bootstrap95(values, 1, median).filter(|(_, b)| b.is_finite());
    with_interval(m, interval, 0)
}

fn table(setup: &Setup, steps: &[Step]) -> Table {
    let title = format!(
        "Main steps from {LOW_PCT:.0} to {HIGH_PCT:.0} % of the machine and back, headroom 30 % \
         (medians, 95 % intervals)"
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
            "went on for, ms",
            "worst",
            "above after, points",
            "below after, points",
            "given back, ms",
        ],
    );
    for c in CONTROLLERS {
        let settle = of(steps, c, |s| s.down.settle_ms);
        if settle.is_empty() {
            continue;
        }
        let worst = settle.iter().copied().fold(0.0, f64::max);
        let cut = of(steps, c, |s| s.cut_ms);
        let middle = |f: fn(&Step) -> f64| {
            median(&of(steps, c, f)).map_or("-".into(), |v| format!("{v:.1}"))
        };
        t.push([
            c.label().to_string(),
            settle.len().to_string(),
            format!("{:.0}", c.allowance_pct(setup.machine.cpus, HIGH_PCT)),
            with_median(&settle),
            ms(worst),
            with_median(&of(steps, c, |s| s.down.reaction_ms)),
            format!("{:.1}", median(&cut).unwrap_or(f64::NAN)),
            format!("{:.1}", most(cut.iter().copied())),
            middle(|s| s.down.over_points),
            middle(|s| s.down.under_points),
            with_median(&given_back(steps, c)),
        ]);
    }
    t
}

fn headline(steps: &[Step]) -> Vec<Headline> {
    let mut lines = Vec::new();
    for c in CONTROLLERS {
        let settle = of(steps, c, |s| s.down.settle_ms);
        if !steps.iter().any(|s| s.controller == c) {
            continue;
        }
        let m = median(&settle).unwrap_or(f64::NAN);
        let name = format!("main's step to side settled: {}", c.label());
        let interval = bootstrap95(&settle, 1, median).filter(|(_, b)| b.is_finite());
        let h = Headline::new(&name, m, "ms").interval(interval);
        let met = |limit: f64| {
            if m.is_nan() {
                Met::Unknown
            } else {
                Met::of(m <= limit)
            }
        };
        lines.push(match c {
            Controller::Ext => h.target("≤ 2", met(2.0)),
            Controller::Tidegate(Sense::Bpf) => h.target("≤ 20", met(20.0)),
            Controller::Tidegate(Sense::Usage) => h.target("≤ 60", met(60.0)),
            _ => h,
        });
    }
    for c in CONTROLLERS {
        if let Some(m) = median(&of(steps, c, |s| s.down.reaction_ms)) {
            lines.push(Headline::new(
                &format!("equivalent reaction time: {}", c.label()),
                m,
                "ms",
            ));
        }
    }
    lines
}

/// Builds the report.
pub fn report(setup: Setup, steps: &[Step], missing: Vec<String>) -> Result<Report, LabError> {
    if steps.is_empty() {
        return Err(LabError::process("step", missing.join(" ")));
    }
    let table = table(&setup, steps);
    let mut report = Report::new("step", setup.machine);
    for s in steps {
        report.rows.push(row(json!({
            "controller": s.controller.key(), "settle_ms": num(s.down.settle_ms),
            "reaction_ms": num(s.down.reaction_ms), "went_on_ms": num(s.cut_ms), "above_points": num(s.down.over_points),
            "below_points": num(s.down.under_points), "side_before_pct": num(s.down.old_pct),
            "give_back_ms": s.give_back_ms.map(num), "valid": s.valid, "other_pct": num(s.other_pct),
        })));
    }
    report.headline = headline(steps);
    report.tables.push(table);
    report.plots.push(trace_plot(steps)?);
    let strips: Vec<(String, Vec<f64>)> = CONTROLLERS
        .iter()
        .map(|&c| (c.label().to_string(), of(steps, c, |s| s.down.settle_ms)))
        .filter(|(_, v)| !v.is_empty())
        .collect();
    report.plots.push(bars::strips(
        "Time until side has settled",
        "Each dot is one step, the bar is the median; the dashed lines are the targets of 20 and 60 ms.",
        "ms after the step (logarithmic)",
        &strips,
        &[20.0, 60.0],
    )?);
    report.notes = missing;
    let invalid = steps.iter().filter(|s| !s.valid).count();
    if invalid > 0 {
        report.notes.push(format!(
            "{invalid} of {} steps do not count: other programs took more than 10 % of the machine, or \
             side was more than 10 points off its allowance before the step.",
            steps.len()
        ));
    }
    report.notes.push(
        "Settled: the least t for which side's mean rate over [t, t + 20 ms] and over [t, t + 200 ms] \
         is within 5 points of its new allowance by that controller's own law. Reaction: side's CPU \
         above the new allowance over the first second, over the drop. Went on: the most that side had beyond its new \
         allowance by any moment of the next half second, as a length of time in which it took all that main left free \
         (a single stretch of 1 ms of its tolerance counts for 5 ms there). Above and below: the greatest \
         difference of any 200 ms mean after settling. Given back: the least t after main's step down \
         for which the mean over [t, t + 200 ms] is within 5 points. Read each millisecond from the \
         side threads' own clocks. Every controller has its side work in a group with cpu.idle; before \
         each step the published laws are put in their steady state at 10 %, and a law's giving back \
         is measured only in the full run."
            .into(),
    );
    Ok(report)
}

/// The median of every controller's trace, bin by bin.
fn trace_plot(steps: &[Step]) -> Result<plots::Plot, LabError> {
    let mut plot = plots::Lines::new(
        "Side's CPU around main's step up",
        "time after the step, ms",
        "side, percent of the machine",
    )
    .see("At 0 main steps up; the sooner a line falls to its floor, the less main suffers.")
    .range(-200.0..1500.0, 0.0..75.0);
    for (i, c) in CONTROLLERS.into_iter().enumerate() {
        let traces: Vec<&[(f64, f64)]> = steps
            .iter()
            .filter(|s| s.controller == c && s.valid)
            .map(|s| s.trace.as_slice())
            .collect();
        let length = traces.iter().map(|t| t.len()).min().unwrap_or(0);
        let points: Vec<(f64, f64)> = (0..length)
            .filter_map(|k| {
                let values: Vec<f64> = traces.iter().map(|t| t[k].1).collect();
                Some((traces[0][k].0, quantile(&values, 0.5)?))
            })
            .filter(|(x, _)| *x <= 1500.0)
            .collect();
        if !points.is_empty() {
            plot = plot.series(c.label(), i, points);
        }
    }
    plot.draw()
}
