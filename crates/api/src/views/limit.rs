//! A gate's own limit, as it is told.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The limit that a gate's own terms ask for, as its group has it (for side work: where the allowance leaves all of it).
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LimitView {
    /// `quota` or `cap_hard`: whichever is the tighter.
    pub by: String,
    /// The rate.
    pub cpus: f64,
    /// CPU time in each period.
    pub quota_us: u64,
    /// The period.
    pub period_us: u64,
    /// Unused quota that may be carried over.
    pub burst_us: u64,
}
