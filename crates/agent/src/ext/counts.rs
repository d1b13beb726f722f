//! What the scheduler counts of a gate, as it is shown.

use serde::{Deserialize, Serialize};
use tidegate_ext::WorkStat;
use tidegate_knobs::group::GroupPath;

use crate::looper::lock;
use crate::owner::Owner;

/// A gate's tasks under the scheduler, since it was loaded or the gate was made, without those of gates inside it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
}

impl From<&WorkStat> for GateCounts {
    fn from(work: &WorkStat) -> GateCounts {
        let us = |ns: u64| ns as f64 / 1e3;
        let delays = &work.run_delay;
        GateCounts {
            used_seconds: work.used_ns() as f64 / 1e9,
            background_seconds: work.background_ns as f64 / 1e9,
            wakeups: delays.count(),
            delay_mean_us: us(delays.mean_ns()),
            delay_p50_us: us(delays.quantile_ns(500)),
            delay_p99_us: us(delays.quantile_ns(990)),
            delay_longest_us: us(delays.longest_ns),
        }
    }
}

impl Owner {
    /// What the scheduler counted of a gate's group; none while it is not in force, or asks nothing of that group.
    pub(crate) fn ext_counts(&self, group: &GroupPath) -> Option<GateCounts> {
        if !self.ext.holds() {
            return None;
        }
        let id = self.groups.id(group).ok()?;
        let work = lock(&self.ext.inner).loaded.as_ref()?.work(id)?;
        Some(GateCounts::from(&work))
    }
}
