//! What both beds' reports have in common: samples, paired ratios, and what side work got.

use super::LEVEL_ONE_PCT;
use crate::beds::TOLERANCE_PCT;
use crate::beds::host::samplers::Shares;
use crate::dist::Latency;
use crate::report::{Sample, Samples};
use crate::stats::{bootstrap95, geometric_mean, with_interval};

/// A way of placing side work.
pub trait Placing: Copy + PartialEq {
    /// The comparison's floor.
    const NO_SIDE: Self;
    /// What the kernel offers today.
    const CPU_IDLE: Self;
    /// In JSON and CSV.
    fn key(self) -> String;
    /// What it keeps idle, percent of the machine.
    fn kept_pct(self) -> f64;
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run<A> {
    /// Size of the machine.
    pub cpus: u32,
    /// Level of main.
    pub load: f64,
    /// How side work is placed.
    pub arm: A,
    /// How neighbours slow each other.
    pub slowdown: Slowdown,
    /// From 0.
    pub round: u32,
}

/// How neighbours slow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slowdown {
    /// As they do; simulated, as measured and frozen.
    Shipped,
    /// A part of it, percent.
    Scaled(u32),
    /// The least that is plausible.
    Low,
    /// The most that is plausible.
    High,
}

/// A ratio with its 95 % interval, where enough rounds were run for one.
pub type Ratio95 = (f64, Option<(f64, f64)>);

/// What arms are compared by: its name, and its figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct By(pub &'static str, pub &'static str);

/// Main's mean latency.
pub const AVERAGE: By = By("average", "avg_us");
/// Its 99th percentile.
pub const P99: By = By("p99", "p99_us");
/// Side's work a second.
pub const WORK: By = By("side work", "side_rate");

/// A run's figures; what only its bed has follows.
pub fn sample<A: Placing>(run: Run<A>, latency: &Latency, s: &Shares) -> Sample<Run<A>> {
    Sample::new(run)
        .with("load", run.load)
        .with("load_pct", run.load * LEVEL_ONE_PCT)
        .with("arm", run.arm.key())
        .with("round", run.round + 1)
        .latency("", latency, &["avg", "p50", "p90", "p99", "p999", "max"])
        .with("main_pct", s.main_pct)
        .with("side_pct", s.side_pct)
        .with("idle_pct", s.idle_pct)
        .with("seconds", s.seconds)
}

/// Side's CPU over what main left above the arm's headroom, percent.
pub fn reclaim_pct<A: Placing>(arm: A, s: &Shares) -> f64 {
    let busy = s.main_pct + s.other_pct;
    100.0 * s.side_pct / (100.0 - arm.kept_pct() - busy).max(TOLERANCE_PCT)
}

/// Which runs.
#[derive(Clone, Copy, Debug)]
pub struct Pick<A> {
    /// Size.
    pub cpus: u32,
    /// Load, or all.
    pub load: Option<f64>,
    /// Arm.
    pub arm: A,
    /// Contention.
    pub slowdown: Slowdown,
}

impl<A: Placing> Pick<A> {
    /// All loads.
    pub fn new(cpus: u32, arm: A) -> Self {
        Pick {
            cpus,
            load: None,
            arm,
            slowdown: Slowdown::Shipped,
        }
    }

    /// At one load.
    pub fn load(self, load: f64) -> Self {
        let load = Some(load);
        Pick { load, ..self }
    }

    /// Whether it is one of them.
    pub fn takes(&self, run: &Run<A>) -> bool {
        let same = (run.cpus, run.arm, run.slowdown) == (self.cpus, self.arm, self.slowdown);
        same && self.load.is_none_or(|l| l == run.load)
    }
}

impl<A: Placing> Samples<Run<A>> {
    /// The mean of a figure; nothing where none was run.
    pub fn of_pick(&self, pick: Pick<A>, name: &str) -> Option<f64> {
        crate::stats::mean(&self.all(name, |run| pick.takes(run)))
    }

    /// A figure over another arm's at the same size, load, contention and round. A main that got nothing done has no latency
    /// to show: the worst there is, not a run to leave out.
    pub fn ratios(&self, pick: Pick<A>, over: A, by: By) -> Vec<f64> {
        let ratio = |s: &Sample<Run<A>>| {
            let base = Run { arm: over, ..s.key };
            let base = self.of(|run| *run == base).next()?;
            if s.get("starved") == 1.0 {
                return Some(f64::INFINITY);
            }
            let r = s.get(by.1) / base.get(by.1);
            (r.is_finite() && r > 0.0).then_some(r)
        };
        self.of(|run| pick.takes(run)).filter_map(ratio).collect()
    }

    /// Their geometric mean.
    pub fn ratio(&self, pick: Pick<A>, over: A, by: By) -> Option<f64> {
        geometric_mean(&self.ratios(pick, over, by))
    }

    /// It with its 95 % interval.
    pub fn ratio95(&self, pick: Pick<A>, over: A, by: By) -> Option<Ratio95> {
        let ratios = self.ratios(pick, over, by);
        let interval = bootstrap95(&ratios, 1, geometric_mean);
        Some((geometric_mean(&ratios)?, interval))
    }

    /// It as a cell of a table.
    pub fn ratio_cell(&self, pick: Pick<A>, over: A, by: By) -> String {
        let ratio = self.ratio95(pick, over, by);
        ratio.map_or("-".into(), |(r, interval)| with_interval(r, interval, 2))
    }

    /// Side work done, percent of what cpu.idle lets it do.
    pub fn side_work_pct(&self, pick: Pick<A>, name: &str) -> Option<f64> {
        let idle = Pick {
            arm: A::CPU_IDLE,
            ..pick
        };
        let most = self.of_pick(idle, name).filter(|rate| *rate > 0.0)?;
        Some(100.0 * self.of_pick(pick, name)? / most)
    }
}
