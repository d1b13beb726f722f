//! Latency hints: cyclictest, hackbench, and what the others keep.

use crate::LabError;
use crate::dist::Latency;
use crate::experiments::published::{CYCLICTEST, HACKBENCH};
use crate::report::{Table, plots};
use crate::stats::most;

/// A statistic of cyclictest as the latency-nice series names it, and where ours is.
type Statistic = (&'static str, fn(&Latency) -> f64);

const STATISTICS: [Statistic; 5] = [
    ("avg", |l| l.avg_us),
    ("p50", |l| l.p50_us),
    ("p90", |l| l.p90_us),
    ("p99", |l| l.p99_us),
    ("max", |l| l.max_us),
];

/// One run of cyclictest.
#[derive(Clone, Debug)]
pub struct Timer {
    /// Scheduler, or way of hinting.
    pub label: String,
    /// The hint.
    pub hint: i8,
    /// What ran beside it, if anything.
    pub beside: Option<&'static str>,
    /// What it saw.
    pub wakeup: Latency,
    /// What hackbench used, percent of the machine.
    pub others_pct: f64,
}

/// All of them, and the latency-nice series' two runs.
pub fn cyclictest(first_head: &str, runs: &[Timer]) -> Table {
    let heads = [
        first_head,
        "hint",
        "beside",
        "avg",
        "p50",
        "p90",
        "p99",
        "max",
        "others, % of the machine",
    ];
    let mut t = Table::new("cyclictest, us", &heads);
    for r in runs {
        let mut cells = vec![
            r.label.clone(),
            r.hint.to_string(),
            r.beside.unwrap_or("nothing").into(),
        ];
        cells.extend(
            STATISTICS
                .iter()
                .map(|(_, f)| format!("{:.1}", f(&r.wakeup))),
        );
        cells.push(format!("{:.1}", r.others_pct));
        t.push(cells);
    }
    for (hint, first) in [(0, true), (-20, false)] {
        for (run, name) in [(0, "published, first run"), (1, "published, second run")] {
            let mut cells = vec![name.to_string(), hint.to_string(), "hackbench".into()];
            for (stat, _) in STATISTICS {
                let of_run = CYCLICTEST
                    .iter()
                    .find(|r| r.stat == stat)
                    .map(|r| if run == 0 { r.a } else { r.b });
                let us = of_run.map(|(without, with)| if first { without } else { with });
                cells.push(match us {
                    Some(20001) => "> 20000".into(),
                    Some(us) => us.to_string(),
                    None => "-".into(),
                });
            }
            cells.push("-".into());
            t.push(cells);
        }
    }
    t
}

/// hackbench of some groups, seconds.
#[derive(Clone, Debug)]
pub struct Messages {
    /// Groups.
    pub groups: u32,
    /// Scheduler, or way of hinting.
    pub label: String,
    /// Without hints.
    pub without_s: Option<f64>,
    /// With them.
    pub with_s: Option<f64>,
}

impl Messages {
    /// How much faster hints make it, percent of its time without.
    pub fn gain_pct(&self) -> Option<f64> {
        Some(100.0 * (1.0 - self.with_s? / self.without_s?))
    }
}

/// All of them beside the latency-nice series' gains.
pub fn hackbench(title: &str, second_head: &str, runs: &[Messages]) -> Table {
    let heads = [
        "groups",
        second_head,
        "without hints",
        "with hints",
        "gain",
        "published gain",
    ];
    let mut t = Table::new(title, &heads);
    for r in runs {
        let seed = HACKBENCH.iter().find(|s| s.groups == r.groups);
        let cell = |s: Option<f64>| s.map_or("-".into(), |s| format!("{s:.3}"));
        t.push([
            r.groups.to_string(),
            r.label.clone(),
            cell(r.without_s),
            cell(r.with_s),
            r.gain_pct().map_or("-".into(), |g| format!("{g:+.1} %")),
            seed.map_or("-".into(), |r| format!("{:+.0} %", r.gain_pct)),
        ]);
    }
    t
}

/// Three hogs and a hinting task on one CPU: worst share against its fair one, where a hog hints and where a task hints
/// that sleeps in between.
#[derive(Clone, Debug)]
pub struct Shares {
    /// Scheduler, or way of hinting.
    pub label: String,
    /// The hint.
    pub hint: i8,
    /// A hog hints.
    pub hog_pct: Option<f64>,
    /// A task that asks for 44 % of 4 ms hints.
    pub asking_pct: Option<f64>,
}

/// All of them.
pub fn fairness(first_head: &str, runs: &[Shares]) -> Table {
    let mut t = Table::new(
        "Worst share against its fair one, three hogs and a hinting task on one CPU",
        &[
            first_head,
            "hint",
            "a hog hints",
            "a task that asks for 44 % of 4 ms hints",
        ],
    );
    for r in runs {
        let cell = |pct: Option<f64>| pct.map_or("-".into(), |pct| format!("{pct:.3} %"));
        t.push([
            r.label.clone(),
            r.hint.to_string(),
            cell(r.hog_pct),
            cell(r.asking_pct),
        ]);
    }
    t
}

/// How far these are from each other's mean, or below what each is due at least; percent of that.
///
/// A hinting hog is due as much as each of the others. A task that sleeps in between asks for more than its quarter too,
/// so that a hint could give it more: the hogs are due equal parts, and no less than a quarter of the CPU each.
pub fn worst_off_pct(used: &[f64], least: f64) -> f64 {
    let mean = used.iter().sum::<f64>() / used.len() as f64;
    let off = |u: &f64| 100.0 * (u / mean - 1.0).abs().max(1.0 - u / least);
    most(used.iter().map(off))
}

/// cyclictest beside hackbench over its percentiles.
pub fn plot(runs: &[Timer]) -> Result<plots::Plot, LabError> {
    let mut plot = plots::Lines::new(
        "cyclictest beside hackbench",
        "percentile (50, 90, 99 and the worst, evenly spaced)",
        "wakeup latency, us",
    )
    .see("Solid differences between hint 0 and hint −20 of one scheduler are what the hint gives.")
    .range(0.0..3.0, 0.0..1.0)
    .dots()
    .log_y();
    for (colour, r) in runs.iter().filter(|r| r.beside.is_some()).enumerate() {
        let l = &r.wakeup;
        let points = [l.p50_us, l.p90_us, l.p99_us, l.max_us];
        let points = points.iter().enumerate().map(|(x, us)| (x as f64, *us));
        let apart = if r.beside == Some("hackbench") {
            ""
        } else {
            ", apart"
        };
        let name = format!("{}, hint {}{apart}", r.label, r.hint);
        plot = plot.series(&name, colour, points.collect());
    }
    plot.draw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_from_all_alike_is_unfair_too() {
        let equal = [24.0; 3];
        assert!(worst_off_pct(&equal, 20.0) < 1e-9);
        let off = worst_off_pct(&equal, 25.0);
        assert!((off - 4.0).abs() < 1e-9, "{off}");
        let off = worst_off_pct(&[27.0, 30.0, 33.0], 25.0);
        assert!((off - 10.0).abs() < 1e-9, "{off}");
    }
}
