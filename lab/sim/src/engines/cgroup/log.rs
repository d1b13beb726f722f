//! What the engine did, written down for reports.

use tidegate_engine::control::{AutoState, Found};
use tidegate_law::HeadroomDecision;

use crate::found::FoundHeadroom;
use crate::{Bandwidth, CpuSet, GroupId, Ns};

/// What the engine did, for reports: shared with the caller that asked for it before the run.
#[derive(Clone, Debug, Default)]
pub struct KnobsLog {
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
    /// The headroom that is found, by measured harm.
    pub found: Option<FoundHeadroom>,
    /// Every cpuset written to keep idle by cpuset beside the engine.
    pub cpusets: Vec<(Ns, GroupId, CpuSet)>,
    /// The last decision of the law.
    pub decision: HeadroomDecision,
    /// Steps made.
    pub steps: u64,
    /// Samples that the law refused.
    pub stale: u64,
    /// Time at the tolerance.
    pub at_tolerance_ns: u64,
    /// What the machine refused, the last of it.
    pub refusal: Option<String>,
}

impl KnobsLog {
    /// Notes what is found now; a step is `period_ns` long.
    pub(super) fn note_found(&mut self, found: &Found, now_ns: Ns, period_ns: u64) {
        let before = self.found;
        let first_ns = before.and_then(|before| before.first_ns);
        self.found = Some(FoundHeadroom {
            level_ppm: found.level_ppm,
            why_unknown: match found.state {
                AutoState::Unknown(why) => Some(why),
                _ => None,
            },
            first_ns: first_ns.or(found.state.is_found().then_some(now_ns)),
            ratio_ppm: found.ratio_ppm,
            low_ns: before.map_or(0, |before| before.low_ns) + u64::from(found.is_low) * period_ns,
        });
    }
}
