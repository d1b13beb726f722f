//! What is ours and was written over, written again.

use tidegate_cgroup::class::set_yielding;
use tidegate_engine::ledger::{Change, Entry};
use tracing::warn;

use crate::runtime::Runtime;
use crate::runtime::supervise::write_mirrors;

/// Writes again what was written over; false where that is not done.
pub(crate) fn reassert(runtime: &Runtime, entry: &Entry) -> bool {
    let kernel = &runtime.kernel;
    let written = match &entry.change {
        Change::Bandwidth { .. } => {
            // One of the loop's is written by the loop.
            runtime.control().quotas.invalidate(&entry.group);
            // Beside the scheduler the loop writes none: the copies are.
            if runtime.sched_ext.holds()
                && let Err(error) = write_mirrors(runtime)
            {
                warn!("{error}");
                return false;
            }
            return match runtime.journal().reassert_own(&entry.group) {
                Ok(_) => true,
                Err(error) => {
                    warn!("{error}");
                    false
                }
            };
        }
        Change::Background { .. } => {
            runtime.control().soft_caps.invalidate(&entry.group);
            if !runtime.sched_ext.holds() {
                return true;
            }
            let written = runtime.journal().set_background(&entry.group, true);
            return written.inspect_err(|error| warn!("{error}")).is_ok();
        }
        Change::Idle { ours, .. } => set_yielding(&kernel.groups, &entry.group, *ours),
        Change::Weight { ours, .. } => kernel.groups.set_weight_raw(&entry.group, *ours),
        Change::Burst { ours_us, .. } => kernel.groups.set_burst(&entry.group, *ours_us),
        Change::Cpuset { ours, .. } => kernel.groups.set_cpuset(&entry.group, ours),
        Change::Group
        | Change::Membership { .. }
        | Change::Latency(_)
        | Change::Subgroups(_)
        | Change::Boost(_) => {
            return false;
        }
    };
    written.inspect_err(|error| warn!("{error}")).is_ok()
}
