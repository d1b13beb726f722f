//! The drawings of one run.

use tidegate_sim::Histogram;
use tidegate_sim::outcome::Outcome;

use super::{MS, S, at};
use crate::LabError;
use crate::report::plots::{Lines, Plot, SERIES};

/// The percentiles that a curve is drawn through.
const CURVE: [f64; 24] = [
    1.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0, 45.0, 50.0, 55.0, 60.0, 65.0, 70.0, 75.0,
    80.0, 85.0, 90.0, 95.0, 98.0, 99.0, 99.9, 100.0,
];

pub(super) fn all(outcome: &Outcome) -> Result<Vec<Plot>, LabError> {
    let mut plots = vec![use_over_time(outcome).draw()?];
    let curve = |values: &Histogram, unit: f64| {
        CURVE
            .map(|percent| (percent, at(values, percent) as f64 / unit))
            .to_vec()
    };
    let mut recorded = Lines::new("What the workloads recorded", "percentile", "ms")
        .see("How many percent of the values were at or below the curve.")
        .range(0.0..100.0, 0.0..1.0)
        .log_y();
    for (at, series) in outcome
        .series
        .iter()
        .filter(|one| one.values.count() > 0)
        .enumerate()
    {
        let name = format!("{}.{}", series.workload, series.what);
        recorded = recorded.series(&name, at % SERIES, curve(&series.values, MS));
    }
    let mut waits = Lines::new("From waking to running, by group", "percentile", "us")
        .see("How long a task that was woken waited for a CPU.")
        .range(0.0..100.0, 0.0..1.0)
        .log_y();
    let most = outcome
        .groups
        .iter()
        .map(|group| at(&group.usage_ucpu, 100.0))
        .max();
    let mut windows = Lines::new(
        &format!(
            "CPUs used in a window of {} ms, by group",
            outcome.window_ns as f64 / MS
        ),
        "percentile",
        "CPUs",
    )
    .see("A flat curve is steady use; a steep one comes and goes.")
    .range(0.0..100.0, 0.0..(most.unwrap_or(0) as f64 / 1e6).max(1.0));
    let (mut any_wait, mut any_window) = (false, false);
    for (at, group) in outcome.groups.iter().enumerate() {
        if group.wakeup.count() > 0 {
            any_wait = true;
            waits = waits.series(&group.name, at % SERIES, curve(&group.wakeup, 1e3));
        }
        if group.usage_ucpu.count() > 0 {
            any_window = true;
            windows = windows.series(&group.name, at % SERIES, curve(&group.usage_ucpu, 1e6));
        }
    }
    if outcome.series.iter().any(|one| one.values.count() > 0) {
        plots.push(recorded.draw()?);
    }
    if any_wait {
        plots.push(waits.draw()?);
    }
    if any_window {
        plots.push(windows.draw()?);
    }
    Ok(plots)
}

fn use_over_time(outcome: &Outcome) -> Lines {
    let end_s = outcome
        .samples
        .last()
        .map_or(1.0, |sample| sample.at_ns as f64 / S);
    let begin_s = outcome.samples.first().map_or(0.0, |sample| {
        sample.at_ns.saturating_sub(outcome.window_ns) as f64 / S
    });
    let mut lines = Lines::new("CPU use over time", "time, s", "CPUs")
        .see("Each window's use, by group; the root's is the whole machine's.")
        .range(
            begin_s..end_s.max(begin_s + 1e-3),
            0.0..f64::from(outcome.cpus),
        );
    for (index, group) in outcome.groups.iter().enumerate() {
        let points = outcome.samples.iter().map(|sample| {
            let used = sample.usage_ns.get(index).copied().unwrap_or(0);
            (
                sample.at_ns as f64 / S,
                used as f64 / outcome.window_ns as f64,
            )
        });
        lines = lines.series(&group.name, index % SERIES, points.collect());
    }
    lines
}

/// A sweep of one key over numbers: the 99th percentile of each recorded series, and each group's use, over the key's value.
/// Other sweeps have no axis to draw them on.
pub(super) fn of_sweep(outcomes: &[Outcome]) -> Result<Vec<Plot>, LabError> {
    let values: Option<Vec<(f64, &str)>> = outcomes
        .iter()
        .map(|outcome| match outcome.point.as_slice() {
            [one] => number(&one.value),
            _ => None,
        })
        .collect();
    let (Some(values), Some(first)) = (values, outcomes.first()) else {
        return Ok(Vec::new());
    };
    // One axis has one unit.
    if values.iter().any(|value| value.1 != values[0].1) {
        return Ok(Vec::new());
    }
    let values: Vec<f64> = values.iter().map(|value| value.0).collect();
    let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(low, high), v| {
        (low.min(*v), high.max(*v))
    });
    if low >= high {
        return Ok(Vec::new());
    }
    let key = first.point.first().map_or("", |one| one.key.as_str());
    let mut tails = Lines::new("The 99th percentile of what was recorded", key, "ms")
        .see("Each point is one run.")
        .range(low..high, 0.0..1.0)
        .log_y()
        .dots();
    let mut any = false;
    for (index, series) in first.series.iter().enumerate() {
        let points: Vec<(f64, f64)> = values
            .iter()
            .zip(outcomes)
            .filter_map(|(x, outcome)| {
                let same = outcome.series.get(index)?;
                (same.values.count() > 0).then(|| (*x, at(&same.values, 99.0) as f64 / MS))
            })
            .collect();
        if !points.is_empty() {
            any = true;
            let name = format!("{}.{}", series.workload, series.what);
            tails = tails.series(&name, index % SERIES, points);
        }
    }
    let most = outcomes
        .iter()
        .map(|outcome| outcome.cpus)
        .max()
        .unwrap_or(1);
    let mut used = Lines::new("CPUs used by each group", key, "CPUs")
        .see("Each point is one run; the root is the whole machine.")
        .range(low..high, 0.0..f64::from(most))
        .dots();
    for (index, group) in first.groups.iter().enumerate() {
        let points = values.iter().zip(outcomes).filter_map(|(x, outcome)| {
            let same = outcome.groups.iter().find(|one| one.name == group.name)?;
            Some((*x, super::cpus_of(same, outcome)))
        });
        used = used.series(&group.name, index % SERIES, points.collect());
    }
    let mut plots = vec![used.draw()?];
    if any {
        plots.insert(0, tails.draw()?);
    }
    Ok(plots)
}

/// The number that a value begins with, and its unit.
fn number(value: &str) -> Option<(f64, &str)> {
    let end = value
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(value.len());
    let (digits, unit) = value.split_at(end);
    let plain = unit.chars().all(|c| c.is_alphabetic() || "%‰/".contains(c));
    digits.parse().ok().filter(|_| plain).map(|n| (n, unit))
}

#[cfg(test)]
mod tests {
    use crate::simulated_report::plots::number;

    #[test]
    fn values_with_units_have_numbers() {
        assert_eq!(number("30%"), Some((30.0, "%")));
        assert_eq!(number("2.5ms"), Some((2.5, "ms")));
        assert_eq!(number("500/s"), Some((500.0, "/s")));
        assert_eq!(number("16"), Some((16.0, "")));
        for none in ["auto", "0-3,8", "", "-5", "2*cpus"] {
            assert_eq!(number(none), None, "{none}");
        }
    }
}
