//! What came of a run: integers only, the same bytes from the same scenario.

use crate::Ns;
use crate::hist::Histogram;
use crate::spec::{Class, CpuStat};

#[derive(Clone, Debug)]
pub struct Outcome {
    pub seed: u64,
    pub cpus: u32,
    /// The engine's name.
    pub engine: &'static str,
    /// What was measured: the run without its warm-up.
    pub measured_ns: u64,
    /// Scheduling events of the whole run.
    pub events: u64,
    /// CPU time that was not used, of all CPUs together.
    pub idle_ns: u64,
    /// How long side work was at the tolerance, where the engine says so.
    pub at_tolerance_ns: Option<u64>,
    /// The groups, the root first (it holds everything).
    pub groups: Vec<GroupOutcome>,
    pub series: Vec<SeriesOutcome>,
    /// Use over time, a sample a window.
    pub samples: Vec<Sample>,
    pub window_ns: u64,
    /// What the machine refused an engine.
    pub refusals: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct GroupOutcome {
    pub name: String,
    /// Its class, its own or that of the nearest group above which has one.
    pub class: Class,
    /// CPU time of its tasks and of all groups below.
    pub usage_ns: u64,
    /// What that was worth at full speed.
    pub work_ns: u64,
    /// How long its tasks were ready without a CPU.
    pub run_delay_ns: u64,
    /// From waking to running, of its own tasks.
    pub wakeup: Histogram,
    /// Writes of its files by engines.
    pub writes: u64,
    /// What its limit counted, without the warm-up, but for a time throttled that ended after it.
    pub stat: CpuStat,
}

#[derive(Clone, Debug)]
pub struct SeriesOutcome {
    pub workload: String,
    /// The workload's group, by its name.
    pub group: String,
    /// What was recorded, such as `latency`.
    pub what: &'static str,
    pub values: Histogram,
}

/// Use in one window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    pub at_ns: Ns,
    /// CPU time in it, by group, the root first.
    pub usage_ns: Vec<u64>,
}

impl Outcome {
    /// CPU time there was in what was measured.
    pub fn capacity_ns(&self) -> u64 {
        // At most 1024 CPUs for a day: below 2^57.
        self.measured_ns * u64::from(self.cpus)
    }
}
