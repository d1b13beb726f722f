//! Sums since the agent started, as metrics have them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sums since the agent started. CPU is counted while the control loop runs: it rests where nothing is limited.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TotalsView {
    /// What main and the headroom left for side work, while there was some.
    pub reclaimable_cpu_seconds: f64,
    /// What side work used.
    pub side_cpu_seconds: f64,
    /// Everything but side and idle.
    pub main_cpu_seconds: f64,
    /// What the agent itself used.
    pub agent_cpu_seconds: f64,
    /// Writes to kernel files by why they were made.
    pub writes: BTreeMap<String, u64>,
    /// Events by kind.
    pub events: BTreeMap<String, u64>,
    /// How late steps of the control loop began.
    pub step_lateness: HistogramView,
    /// How long tasks waited to run, by class: `main`, and `neutral` for what no gate names. Empty where the sensor cannot tell.
    #[serde(default)]
    pub run_delay: BTreeMap<String, HistogramView>,
}

/// How many values lay at or below each bound.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct HistogramView {
    /// Their sum.
    pub sum_seconds: f64,
    /// How many there are.
    pub count: u64,
    /// Upper bounds in seconds, with how many lie at or below each.
    pub buckets: Vec<(f64, u64)>,
}
