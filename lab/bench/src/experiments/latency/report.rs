//! What both beds' reports have in common: samples, tables and the plot.

use super::{BESIDE_GROUPS, Beside, Part, SENSITIVE, YIELDING};
use crate::LabError;
use crate::dist::Latency;
use crate::experiments::published::{CYCLICTEST, HACKBENCH};
use crate::report::{Sample, Samples, Table, cell, plots};
use crate::stats;

/// hackbench's tasks beside cyclictest.
pub const BESIDE_TASKS: u32 = BESIDE_GROUPS * 40;

/// A way of hinting, or a scheduler with a hint or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// In JSON and CSV.
    pub key: &'static str,
    /// In tables.
    pub label: &'static str,
    /// Whether there is a hint.
    pub hinted: bool,
}

impl Way {
    fn hint(self, hint: i8) -> i8 {
        if self.hinted { hint } else { 0 }
    }
}

/// A part in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// What runs.
    pub part: Part,
    /// How it is hinted, or scheduled.
    pub way: Way,
}

/// What came of it; NaN where the part has no such figure.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// From when it was due, or sent, to when it ran.
    pub wakeup: Latency,
    /// hackbench's time.
    pub seconds: f64,
    /// What the others used, percent of the machine.
    pub others_pct: f64,
    /// Worst share against its fair one.
    pub unfair_pct: f64,
}

impl Default for Outcome {
    fn default() -> Self {
        Outcome {
            wakeup: Latency::default(),
            seconds: f64::NAN,
            others_pct: f64::NAN,
            unfair_pct: f64::NAN,
        }
    }
}

impl Outcome {
    /// The figures of its part; what only the bed has follows.
    pub fn sample(&self, run: Run) -> Sample<Run> {
        let sensitive = |part| {
            let sample = Sample::new(run).with("part", part);
            sample.with("hint", run.way.hint(SENSITIVE))
        };
        let wakeups = self.wakeup.completed;
        match run.part {
            Part::Cyclictest { .. } => sensitive("cyclictest")
                .latency(
                    "",
                    &self.wakeup,
                    &["avg", "p50", "p90", "p99", "p999", "max"],
                )
                .with("wakeups", wakeups)
                .with("others_pct", self.others_pct),
            Part::Schbench => sensitive("schbench")
                .latency("", &self.wakeup, &["p50", "p99", "max"])
                .with("wakeups", wakeups),
            Part::Fairness { hog } => sensitive("fairness")
                .with("hinting_is_hog", hog)
                .with("worst_share_off_pct", self.unfair_pct),
            Part::Hackbench { groups } => Sample::new(run)
                .with("part", "hackbench")
                .with("hint", run.way.hint(YIELDING))
                .with("groups", groups)
                .with("seconds", self.seconds),
        }
    }
}

/// The runs of a bed.
pub struct HintRuns {
    /// All of them.
    pub samples: Samples<Run>,
    /// What the ways are: `hinted by`, or `scheduler`.
    pub head: &'static str,
}

impl HintRuns {
    /// The mean of a figure; NaN where it was not run.
    pub fn mean(&self, part: Part, way: Way, name: &str) -> f64 {
        self.samples.mean(name, |run| *run == Run { part, way })
    }

    /// Of cyclictest's wakeups.
    pub fn p99(&self, way: Way, beside: Beside) -> f64 {
        self.mean(Part::Cyclictest { beside }, way, "p99_us")
    }

    /// The farthest from a fair share, of both tasks that hint.
    pub fn unfair_pct(&self, way: Way) -> f64 {
        let off = |hog| self.mean(Part::Fairness { hog }, way, "worst_share_off_pct");
        stats::most([false, true].map(off))
    }

    fn was_run(&self, part: Part, way: Way) -> bool {
        self.samples
            .of(|run| *run == Run { part, way })
            .next()
            .is_some()
    }

    /// hackbench's numbers of groups.
    pub fn groups(&self) -> Vec<u32> {
        let groups = self.samples.chosen(|run| match run.part {
            Part::Hackbench { groups } => Some(groups),
            _ => None,
        });
        let mut all: Vec<u32> = groups.into_iter().flatten().collect();
        all.sort_unstable();
        all
    }

    fn seconds(&self, groups: u32, way: Way) -> f64 {
        self.mean(Part::Hackbench { groups }, way, "seconds")
    }

    /// By how much hackbench is faster with one way than without it, percent of its time without; NaN where either was not run.
    pub fn gain_pct(&self, groups: u32, without: Way, with: Way) -> f64 {
        100.0 * (1.0 - self.seconds(groups, with) / self.seconds(groups, without))
    }

    /// cyclictest in those of these ways that were run, and the latency-nice series' two runs.
    pub fn cyclictest(&self, runs: &[(Way, Beside)]) -> Table {
        let f = |r: &(Way, Beside), name: &str| {
            let part = Part::Cyclictest { beside: r.1 };
            format!("{:.1}", self.mean(part, r.0, name))
        };
        let mut t = Table::of(
            "cyclictest, us",
            self.timers(runs),
            &[
                (self.head, &|r| r.0.label.into()),
                ("hint", &|r| r.0.hint(SENSITIVE).to_string()),
                ("beside", &|r| r.1.label().into()),
                ("avg", &|r| f(r, "avg_us")),
                ("p50", &|r| f(r, "p50_us")),
                ("p90", &|r| f(r, "p90_us")),
                ("p99", &|r| f(r, "p99_us")),
                ("max", &|r| f(r, "max_us")),
                ("others, % of the machine", &|r| f(r, "others_pct")),
            ],
        );
        for hint in [0, SENSITIVE] {
            for (run, name) in [(0, "published, first run"), (1, "published, second run")] {
                let mut cells = vec![name.to_string(), hint.to_string(), "hackbench".into()];
                for stat in ["avg", "p50", "p90", "p99", "max"] {
                    let row = CYCLICTEST.iter().find(|r| r.stat == stat);
                    let us = row.map(|r| if run == 0 { r.a } else { r.b });
                    cells.push(match us.map(|us| if hint == 0 { us.0 } else { us.1 }) {
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

    fn timers(&self, runs: &[(Way, Beside)]) -> Vec<(Way, Beside)> {
        let was_run = |(way, beside): &&(Way, Beside)| {
            self.was_run(Part::Cyclictest { beside: *beside }, *way)
        };
        runs.iter().filter(was_run).copied().collect()
    }

    /// hackbench alone: each way beside the one that it is compared with, and the latency-nice series' gains.
    pub fn hackbench(&self, ways: &[(Way, Way)]) -> Table {
        let all = self.groups().into_iter();
        let rows = all.flat_map(|groups| ways.iter().map(move |(a, b)| (groups, *a, *b)));
        let seconds = |groups, way| cell(self.seconds(groups, way), 3, "");
        let gain = |pct: f64| {
            if pct.is_nan() {
                "-".into()
            } else {
                format!("{pct:+.1} %")
            }
        };
        let published = |groups| {
            let row = HACKBENCH.iter().find(|r| r.groups == groups);
            row.map_or("-".into(), |r| format!("{:+.0} %", r.gain_pct))
        };
        Table::of(
            "hackbench alone, seconds",
            rows,
            &[
                ("groups", &|r| r.0.to_string()),
                (self.head, &|r| r.2.label.into()),
                ("without hints", &|r| seconds(r.0, r.1)),
                ("with hints", &|r| seconds(r.0, r.2)),
                ("gain", &|r| gain(self.gain_pct(r.0, r.1, r.2))),
                ("published gain", &|r| published(r.0)),
            ],
        )
    }

    /// Three hogs and a hinting task on one CPU: worst share against its fair one, where a hog hints and where a task hints
    /// that sleeps in between.
    pub fn fairness(&self, ways: &[Way]) -> Table {
        let off = |way: &Way, hog| {
            cell(
                self.mean(Part::Fairness { hog }, *way, "worst_share_off_pct"),
                3,
                " %",
            )
        };
        let was_run = |way: &&Way| self.was_run(Part::Fairness { hog: true }, **way);
        Table::of(
            "Worst share against its fair one, three hogs and a hinting task on one CPU",
            ways.iter().filter(was_run),
            &[
                (self.head, &|w| w.label.into()),
                ("hint", &|w| w.hint(SENSITIVE).to_string()),
                ("a hog hints", &|w| off(w, true)),
                ("a task that asks for 44 % of 4 ms hints", &|w| {
                    off(w, false)
                }),
            ],
        )
    }

    /// cyclictest beside hackbench over its percentiles.
    pub fn plot(&self, runs: &[(Way, Beside)]) -> Result<plots::Plot, LabError> {
        let mut plot = plots::Lines::new(
            "cyclictest beside hackbench",
            "percentile (50, 90, 99 and the worst, evenly spaced)",
            "wakeup latency, us",
        )
        .see("Solid differences between hint 0 and hint −20 of one scheduler are what the hint gives.")
        .range(0.0..3.0, 0.0..1.0)
        .dots()
        .log_y();
        let beside = self
            .timers(runs)
            .into_iter()
            .filter(|r| r.1 != Beside::Nothing);
        for (colour, (way, beside)) in beside.enumerate() {
            let us = |name| self.mean(Part::Cyclictest { beside }, way, name);
            let points = ["p50_us", "p90_us", "p99_us", "max_us"].map(us);
            let points = points.iter().enumerate().map(|(x, us)| (x as f64, *us));
            let apart = if beside == Beside::Apart {
                ", apart"
            } else {
                ""
            };
            let name = format!("{}, hint {}{apart}", way.label, way.hint(SENSITIVE));
            plot = plot.series(&name, colour, points.collect());
        }
        plot.draw()
    }
}
