//! What the engine sched_ext counts of a gate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A gate's tasks under the agent's schedulers so far, since the gate was made, without those of gates inside it. All but its cap is
/// nothing where there are more gates than the scheduler has accounts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateCounts {
    /// CPU time.
    pub used_seconds: f64,
    /// Of it, out of its soft cap.
    pub background_seconds: f64,
    /// Times that a task was woken, or forked, and ran.
    pub wakeups: u64,
    /// From wakeup to run, the mean.
    pub delay_mean_us: f64,
    /// Half of the wakeups waited no longer, by powers of two.
    pub delay_p50_us: f64,
    /// 99 of 100 waited no longer.
    pub delay_p99_us: f64,
    /// The longest.
    pub delay_longest_us: f64,
    /// Its cap, if it has one.
    #[serde(default)]
    pub cap: Option<CapCounts>,
}

/// What the scheduler did for a gate's cap, since it was loaded or the cap was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CapCounts {
    /// The hard cap, in parts per thousand of one CPU.
    pub hard_cpus: Option<f64>,
    /// The soft cap.
    pub soft_cpus: Option<f64>,
    /// What shares one bucket: `group`, `process`, `task`.
    pub scope: String,
    /// Buckets: one, or one for each.
    pub buckets: u32,
    /// What the one bucket holds of the hard cap; debt where negative. None where there is one for each.
    pub level_us: Option<f64>,
    /// The same of the soft cap.
    pub soft_level_us: Option<f64>,
    /// CPU time under the cap.
    pub used_seconds: f64,
    /// Of it, above the soft cap, that no other work wanted.
    pub background_seconds: f64,
    /// The same over the last look, in CPUs.
    pub background_cpus: f64,
    /// Times that a task was held back.
    pub throttles: u64,
    /// For how long, all tasks added up.
    pub throttled_seconds: f64,
    /// Runs beyond the cap that only the kernel's watchdog made necessary.
    pub min_runs: u64,
}
