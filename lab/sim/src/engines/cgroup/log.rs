//! What the engine did, written down for reports.

use tidegate_law::HeadroomDecision;

use crate::{Bandwidth, CpuSet, GroupId, Ns};

/// What the engine did, for reports: shared with the caller that asked for it before the run.
#[derive(Clone, Debug, Default)]
pub struct CgroupLog {
    /// Every quota written: when, to which group, what.
    pub writes: Vec<(Ns, GroupId, Bandwidth)>,
    /// Every entry into the idle class (true) or exit from it.
    pub yields: Vec<(Ns, GroupId, bool)>,
    /// Headroom that main's run delay added, and the mean of it over all steps.
    pub extra_ppm: u32,
    /// The sum of it over all steps, for its mean.
    pub extra_sum_ppm: u64,
    /// Raises of it, and those given back since they did not help.
    pub raises: (u32, u32),
    /// Every cpuset written to keep idle by cpuset beside the engine.
    pub cpusets: Vec<(Ns, GroupId, CpuSet)>,
    /// The last decision of the law.
    pub decision: HeadroomDecision,
    pub steps: u64,
    /// Samples that the law refused.
    pub stale: u64,
    /// Time at the tolerance.
    pub at_tolerance_ns: u64,
    /// What the machine refused, the last of it.
    pub refusal: Option<String>,
}
