//! The machine over the last hour.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The machine over a stretch of the last hour.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryView {
    /// The stretch's beginning, seconds since 1970.
    pub from_unix_seconds: u64,
    /// Its end, which belongs to it.
    pub to_unix_seconds: u64,
    /// What one point covers.
    pub step_seconds: u64,
    /// Oldest first; a step in which the agent sampled nothing has none.
    pub points: Vec<HistoryPointView>,
}

/// Means over one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryPointView {
    /// When the step began, seconds since 1970.
    pub time_unix_seconds: u64,
    /// Samples in it, one a second.
    pub samples: u64,
    /// CPUs less what the hypervisor took.
    pub capacity_cpus: f64,
    /// Everything but side and idle.
    pub main_cpus: f64,
    /// Side work.
    pub side_cpus: f64,
    /// Idle.
    pub idle_cpus: f64,
    /// What the law gave side work.
    pub allowance_cpus: f64,
    /// Headroom in force, of the machine.
    pub headroom_ratio: f64,
    /// Idle kept, of the machine.
    pub idle_kept_ratio: f64,
    /// Steps of the control loop that began more than a period late: their number, not a mean.
    pub late_steps: u64,
}
