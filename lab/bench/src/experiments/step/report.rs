//! What the steps come to.

use std::ops::Range;

use super::super::settle::{StepDown, Trace};
use super::{HIGH_PCT, LOW_PCT};
use crate::LabError;
use crate::beds::Bed;
use crate::report::samples::{median95, whole_ms, with_median};
use crate::report::{Headline, Met, Report, Sample, Samples, Table, bars, plots};
use crate::stats::{median, most};

/// Who holds side work back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Who {
    /// In JSON and CSV.
    pub key: &'static str,
    /// In tables.
    pub label: &'static str,
    /// The promised settle time.
    pub target_ms: Option<f64>,
}

/// One step.
#[derive(Clone, Debug)]
pub struct Step {
    /// Whose.
    pub who: Who,
    /// The machine's size, where there are several.
    pub cpus: Option<u32>,
    /// Whether it shows something of the controller.
    pub valid: bool,
    /// Side's rate around the step up, in bins: (ms after the step, percent).
    pub trace: Vec<(f64, f64)>,
}

const BIN_NS: u64 = 10_000_000;
/// Bins before the step.
const BEFORE: u64 = 20;

/// The rate in each of these bins; 0 is `BEFORE` bins before the step.
pub fn bins(trace: &Trace<'_>, up_ns: u64, range: Range<u64>) -> Vec<(f64, f64)> {
    let rate = |i: u64| {
        let from = up_ns - BEFORE * BIN_NS + i * BIN_NS;
        let ms = (from + BIN_NS / 2) as f64 / 1e6 - up_ns as f64 / 1e6;
        Some((ms, trace.rate_pct(from, from + BIN_NS)?))
    };
    range.filter_map(rate).collect()
}

/// A step's figures; what only its bed has follows. `new_pct` is the allowance after it.
pub fn sample(
    step: Step,
    down: &StepDown,
    give_back_ms: Option<f64>,
    new_pct: f64,
) -> Sample<Step> {
    let (who, valid) = (step.who.key, step.valid);
    Sample::new(step)
        .with("controller", who)
        .with("settle_ms", down.settle_ms)
        .with("reaction_ms", down.reaction_ms)
        .with("above_points", down.over_points)
        .with("below_points", down.under_points)
        .with("side_before_pct", down.old_pct)
        .with("give_back_ms", give_back_ms)
        .with("valid", valid)
        .aside("new_pct", new_pct)
}

/// All steps on machines of one size.
struct Sized<'a> {
    steps: &'a Samples<Step>,
    cpus: Option<u32>,
    /// As the words have it: nothing, or `, 16 CPUs`.
    named: String,
}

/// Builds the report, without its last notes. `digits` are those of a median and of an allowance, by its size.
pub fn report(
    bed: impl Into<Bed>,
    steps: Vec<Sample<Step>>,
    order: Option<&[Who]>,
    digits: fn(f64) -> usize,
) -> Result<Report, LabError> {
    let steps = Samples(steps);
    let all = order.map_or_else(|| steps.chosen(|s| s.who), <[Who]>::to_vec);
    let was_run = |who: &&Who| steps.0.iter().any(|s| s.key.who == **who);
    let who: Vec<Who> = all.iter().filter(was_run).copied().collect();
    let sized = |cpus: Option<u32>| Sized {
        steps: &steps,
        cpus,
        named: cpus.map_or(String::new(), |n| format!(", {n} CPUs")),
    };
    let sizes: Vec<Sized<'_>> = steps.chosen(|s| s.cpus).into_iter().map(sized).collect();
    let mut report = Report::new("step", bed);
    report.rows = steps.rows();
    for of_size in &sizes {
        report.headline.extend(of_size.headline(&who));
        report.tables.push(of_size.table(&who, digits));
    }
    if let Some(shown) = sizes.first() {
        report.plots = vec![shown.traces(&all)?, shown.settled(&all)?];
    }
    let invalid = steps.of(|s| !s.valid).count();
    if invalid > 0 {
        report.notes.push(format!(
            "{invalid} of {} steps do not count: {}side was more than 10 points off its allowance before the step.",
            steps.0.len(),
            if sizes.iter().any(|s| s.cpus.is_none()) {
                "other programs took more than 10 % of the machine, or "
            } else {
                ""
            },
        ));
    }
    Ok(report)
}

impl Sized<'_> {
    fn of(&self, who: &Who, name: &str) -> Vec<f64> {
        let counts = |s: &Step| s.who == *who && s.cpus == self.cpus && s.valid;
        self.steps.all(name, counts)
    }

    fn headline(&self, who: &[Who]) -> Vec<Headline> {
        let mut lines = Vec::new();
        for who in who {
            let settle = self.of(who, "settle_ms");
            let m = median(&settle).unwrap_or(f64::NAN);
            let name = format!("main's step to side settled{}: {}", self.named, who.label);
            let h = Headline::new(&name, m, "ms").interval(median95(&settle));
            lines.push(match (who.target_ms, self.cpus) {
                // Nothing disturbs a simulated step: none that counts is no pass.
                (Some(limit), Some(_)) => h.target(&format!("≤ {limit}"), Met::of(m <= limit)),
                (Some(limit), None) => h.at_most(limit),
                _ => h,
            });
        }
        for who in who.iter().filter(|_| self.cpus.is_none()) {
            let name = format!("equivalent reaction time: {}", who.label);
            let reaction = median(&self.of(who, "reaction_ms"));
            lines.extend(reaction.map(|ms| Headline::new(&name, ms, "ms")));
        }
        lines
    }

    fn table(&self, who: &[Who], digits: fn(f64) -> usize) -> Table {
        let (of, headroom) = match self.cpus {
            Some(cpus) => (format!("{cpus} CPUs"), ""),
            None => ("the machine".into(), ", headroom 30 %"),
        };
        let title = format!(
            "Main steps from {LOW_PCT:.0} to {HIGH_PCT:.0} % of {of} and back{headroom} (medians, 95 % intervals)"
        );
        let middle =
            |who: &Who, name| median(&self.of(who, name)).map_or("-".into(), |v| format!("{v:.1}"));
        let medians = |who: &Who, name| with_median(&self.of(who, name), digits);
        let worst = |who: &Who, name| most(self.of(who, name));
        let allowance = |who: &Who| {
            let new = self
                .steps
                .mean("new_pct", |s| s.who == *who && s.cpus == self.cpus);
            format!("{new:.*}", digits(0.0))
        };
        let given_back = |who: &Who| {
            let mut all = self.of(who, "give_back_ms");
            all.retain(|ms| !ms.is_nan());
            with_median(&all, digits)
        };
        let host = |head| if self.cpus.is_none() { head } else { "" };
        let shown = |who: &&Who| self.cpus.is_some() || !self.of(who, "settle_ms").is_empty();
        Table::of(
            &title,
            who.iter().filter(shown),
            &[
                ("controller", &|w| w.label.into()),
                ("steps", &|w| self.of(w, "settle_ms").len().to_string()),
                ("new allowance, %", &|w| allowance(w)),
                ("settled, ms", &|w| medians(w, "settle_ms")),
                ("worst", &|w| whole_ms(worst(w, "settle_ms"))),
                ("reaction, ms", &|w| medians(w, "reaction_ms")),
                (host("went on for, ms"), &|w| middle(w, "went_on_ms")),
                (host("worst"), &|w| format!("{:.1}", worst(w, "went_on_ms"))),
                ("above after, points", &|w| middle(w, "above_points")),
                ("below after, points", &|w| middle(w, "below_points")),
                ("given back, ms", &|w| given_back(w)),
            ],
        )
    }

    fn settled(&self, all: &[Who]) -> Result<plots::Plot, LabError> {
        let strips: Vec<(String, Vec<f64>)> = all
            .iter()
            .map(|who| (who.label.to_string(), self.of(who, "settle_ms")))
            .filter(|(_, values)| !values.is_empty())
            .collect();
        let (targets, levels) = match self.cpus {
            Some(_) => ("2, 20 and 60", &[2.0, 20.0, 60.0][..]),
            None => ("20 and 60", &[20.0, 60.0][..]),
        };
        bars::strips(
            &format!("Time until side has settled{}", self.named),
            &format!(
                "Each dot is one step, the bar is the median; the dashed lines are the targets of {targets} ms."
            ),
            "ms after the step (logarithmic)",
            &strips,
            levels,
        )
    }

    /// The median of every controller's trace, bin by bin.
    fn traces(&self, all: &[Who]) -> Result<plots::Plot, LabError> {
        let mut plot = plots::Lines::new(
            &format!("Side's CPU around main's step up{}", self.named),
            "time after the step, ms",
            "side, percent of the machine",
        )
        .see("At 0 main steps up; the sooner a line falls to its floor, the less main suffers.")
        .range(-200.0..1500.0, 0.0..75.0);
        for (i, who) in all.iter().enumerate() {
            let counts = |s: &Step| s.who == *who && s.cpus == self.cpus && s.valid;
            let traces: Vec<&[(f64, f64)]> = self
                .steps
                .of(counts)
                .map(|s| s.key.trace.as_slice())
                .collect();
            let length = traces.iter().map(|t| t.len()).min().unwrap_or(0);
            let points: Vec<(f64, f64)> = (0..length)
                .filter_map(|k| {
                    let values: Vec<f64> = traces.iter().map(|t| t[k].1).collect();
                    Some((traces[0][k].0, median(&values)?))
                })
                .filter(|(x, _)| *x <= 1500.0)
                .collect();
            if !points.is_empty() {
                plot = plot.series(who.label, i, points);
            }
        }
        plot.draw()
    }
}
