//! A scenario through the simulator, and what its outcome says of an arm.

use tidegate_recording::Recording;
use tidegate_sim::Histogram;
use tidegate_sim::outcome::{GroupOutcome, Outcome};
use tidegate_sim::run::{RunError, Stage};
use tidegate_sim::scenario::{Override, Scenario, ScenarioError, Text};

use crate::replay::arm::Arm;
use crate::replay::demand::Demand;
use crate::replay::scenario::{Written, write};
use crate::replay::view::{ArmView, FigureView, FiguresView, POINTS_MAX, PointView, WorkView};

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The generated scenario is refused: a bug.
    #[error(
        "{arm}: the scenario made of the recording is refused: {error}; report this as a bug, with the recording if you can"
    )]
    Scenario { arm: String, error: ScenarioError },
    #[error("{arm}, seed {seed}: {error}; report this as a bug, with the recording if you can")]
    Run {
        arm: String,
        seed: u64,
        error: RunError,
    },
    #[error("nothing used CPU in the recording; take another span")]
    Idle,
}

pub struct Prepared<'a> {
    pub arm: &'a Arm,
    pub written: Written,
}

impl<'a> Prepared<'a> {
    pub fn new(recording: &Recording, demand: &Demand, arm: &'a Arm) -> Self {
        Prepared {
            arm,
            written: write(recording, demand, arm),
        }
    }

    /// Runs it with a seed; `progress` hears of simulated nanoseconds.
    ///
    /// # Errors
    /// A bug.
    pub fn run(&self, seed: u64, progress: &(dyn Fn(u64) + Sync)) -> Result<Outcome, ReplayError> {
        let arm = || self.arm.name.clone();
        let text = Text {
            shown: "replay.toml".to_owned(),
            name: "replay".to_owned(),
            text: self.written.text.clone(),
        };
        let seeded = [Override::new("seed", &seed.to_string())];
        let scenario = Scenario::resolve(&text, &seeded)
            .map_err(|error| ReplayError::Scenario { arm: arm(), error })?;
        let failed = |error| ReplayError::Run {
            arm: arm(),
            seed,
            error,
        };
        let stage = Stage::new(&scenario).map_err(failed)?;
        let ran = stage.run(&scenario, &mut |ns| progress(ns));
        ran.map_err(failed)
    }
}

fn group_at(outcome: &Outcome, name: &str) -> Option<usize> {
    outcome.groups.iter().position(|group| group.name == name)
}

/// What one outcome says, by names that the scenario gave.
pub struct Read<'a> {
    pub written: &'a Written,
    pub outcome: &'a Outcome,
}

impl Read<'_> {
    fn seconds(&self) -> f64 {
        self.outcome.measured_ns.max(1) as f64 / 1e9
    }

    fn group(&self, node: usize) -> Option<&GroupOutcome> {
        let at = group_at(self.outcome, &self.written.groups[node])?;
        self.outcome.groups.get(at)
    }

    /// CPUs that a node and all within it used.
    pub fn node_cpus(&self, node: usize) -> f64 {
        let used_ns = self.group(node).map_or(0, |group| group.usage_ns);
        used_ns as f64 / 1e9 / self.seconds()
    }

    fn idle_cpus(&self) -> f64 {
        self.outcome.idle_ns as f64 / 1e9 / self.seconds()
    }

    fn side_cpus(&self) -> f64 {
        let tops = self.written.side_tops.iter();
        tops.map(|node| self.node_cpus(*node)).sum()
    }

    /// From waking to running, of all that counts as main.
    pub fn main_waits(&self) -> Histogram {
        let mut waits = Histogram::new();
        for node in (0..self.written.groups.len()).filter(|node| self.written.is_main[*node]) {
            if let Some(group) = self.group(node) {
                waits.merge(&group.wakeup);
            }
        }
        waits
    }

    /// How long requests of what counts as main take, the mean in microseconds.
    pub fn main_request_us(&self, arm: &Arm) -> Option<f64> {
        let mains = (0..arm.nodes.len()).filter(|node| self.written.is_main[*node]);
        let works = mains.filter_map(|node| arm.nodes[node].work);
        let names: Vec<&String> = works
            .flat_map(|work| &self.written.workloads[work])
            .collect();
        let of_main = |workload: &String| names.contains(&workload);
        let series = self.outcome.series.iter();
        let mut all = Histogram::new();
        for one in series.filter(|one| one.what == "latency" && of_main(&one.workload)) {
            all.merge(&one.values);
        }
        (all.count() > 0).then(|| all.mean_ns() as f64 / 1e3)
    }

    /// One seed's figures, in the order of [`FiguresView`].
    fn figures(&self) -> [Option<f64>; 6] {
        let cpus = f64::from(self.outcome.cpus.max(1));
        let (idle, side) = (self.idle_cpus(), self.side_cpus());
        let waits = self.main_waits();
        let of_waits = |us: f64| (waits.count() > 0).then_some(us);
        let at_tolerance = self.outcome.at_tolerance_ns;
        let measured_ns = self.outcome.measured_ns.max(1);
        // A step that began before what is measured counts whole.
        let of_time = |ns: u64| ns.min(measured_ns) as f64 * 100.0 / measured_ns as f64;
        [
            Some(idle * 100.0 / cpus),
            Some(side),
            Some((cpus - idle - side).max(0.0)),
            of_waits(waits.mean_ns() as f64 / 1e3),
            of_waits(waits.percentile_ns(990_000) as f64 / 1e3),
            at_tolerance.map(of_time),
        ]
    }

    fn points(&self, recording: &Recording) -> Vec<PointView> {
        let cpus = f64::from(self.outcome.cpus);
        let tops: Vec<usize> = self
            .written
            .side_tops
            .iter()
            .filter_map(|node| group_at(self.outcome, &self.written.groups[*node]))
            .collect();
        let window_ns = self.outcome.window_ns.max(1) as f64;
        let used =
            |sample: &[u64], at: usize| sample.get(at).copied().unwrap_or(0) as f64 / window_ns;
        let samples = self.outcome.samples.iter().zip(&recording.seconds);
        let each = samples.map(|(sample, second)| {
            let side_cpus: f64 = tops.iter().map(|at| used(&sample.usage_ns, *at)).sum();
            let all_cpus = used(&sample.usage_ns, 0);
            PointView {
                time_unix_seconds: second.unix_ms as f64 / 1e3,
                main_cpus: (all_cpus - side_cpus).max(0.0),
                side_cpus,
                idle_cpus: (cpus - all_cpus).max(0.0),
                allowance_cpus: None,
            }
        });
        coarse(&each.collect::<Vec<_>>())
    }
}

/// Means of as many points as make at most [`POINTS_MAX`].
pub(crate) fn coarse(points: &[PointView]) -> Vec<PointView> {
    let size = points.len().div_ceil(POINTS_MAX).max(1);
    let mean = |chunk: &[PointView]| {
        let of = |get: fn(&PointView) -> f64| {
            chunk.iter().map(get).sum::<f64>() / chunk.len().max(1) as f64
        };
        let last = chunk.last().copied().unwrap_or_default();
        PointView {
            time_unix_seconds: last.time_unix_seconds,
            main_cpus: of(|point| point.main_cpus),
            side_cpus: of(|point| point.side_cpus),
            idle_cpus: of(|point| point.idle_cpus),
            allowance_cpus: last
                .allowance_cpus
                .map(|_| of(|point| point.allowance_cpus.unwrap_or(0.0))),
        }
    };
    points.chunks(size).map(mean).collect()
}

/// The mean of some values with the least and the largest.
pub(crate) fn figure(values: &[f64]) -> Option<FigureView> {
    let from = values.iter().copied().reduce(f64::min)?;
    let to = values.iter().copied().reduce(f64::max)?;
    Some(FigureView {
        value: values.iter().sum::<f64>() / values.len() as f64,
        from,
        to,
    })
}

/// An arm's view, of one outcome a seed.
pub fn arm_view(
    recording: &Recording,
    demand: &Demand,
    prepared: &Prepared<'_>,
    outcomes: &[Outcome],
) -> ArmView {
    let arm = prepared.arm;
    let reads: Vec<Read<'_>> = outcomes
        .iter()
        .map(|outcome| Read {
            written: &prepared.written,
            outcome,
        })
        .collect();
    let figures: Vec<[Option<f64>; 6]> = reads.iter().map(Read::figures).collect();
    let of = |at: usize| {
        let values: Vec<f64> = figures.iter().filter_map(|one| one[at]).collect();
        figure(&values)
    };
    let works = demand.works.iter().enumerate().filter_map(|(work, one)| {
        let node = arm.node_of(work)?;
        let used: Vec<f64> = reads.iter().map(|read| read.node_cpus(node)).collect();
        Some(WorkView {
            name: one.name.clone(),
            class: arm.class_of(node).name().to_owned(),
            used_cpus: figure(&used)?.value,
        })
    });
    ArmView {
        name: arm.name.clone(),
        is_recorded: false,
        points: reads
            .first()
            .map(|read| read.points(recording))
            .unwrap_or_default(),
        figures: FiguresView {
            idle_kept_pct: of(0),
            side_cpus: of(1),
            main_cpus: of(2),
            main_wait_mean_us: of(3),
            main_wait_p99_us: of(4),
            at_tolerance_pct: of(5),
        },
        works: works.collect(),
    }
}
