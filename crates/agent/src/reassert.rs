//! What is ours and was written over, written again.

use tidegate_knobs::ledger::{Change, Entry};
use tracing::warn;

use crate::agent::Agent;
use crate::control_thread::lock;
use crate::limits::set_yielding;

/// Writes again what was written over; false where that is not done.
pub(crate) fn reassert(agent: &Agent, entry: &Entry) -> bool {
    let written = match &entry.change {
        Change::Bandwidth { .. } => {
            // One of the loop's is written by the loop.
            lock(&agent.control).quotas.invalidate(&entry.group);
            // Beside the scheduler the loop writes none: the copies are.
            if agent.ext.holds()
                && let Err(error) = agent.write_mirrors()
            {
                warn!("{error}");
                return false;
            }
            return match lock(&agent.journal).reassert_own(&entry.group) {
                Ok(_) => true,
                Err(error) => {
                    warn!("{error}");
                    false
                }
            };
        }
        Change::Background { .. } => {
            lock(&agent.control).soft_caps.invalidate(&entry.group);
            if !agent.ext.holds() {
                return true;
            }
            let written = lock(&agent.journal).set_background(&entry.group, true);
            return written.inspect_err(|error| warn!("{error}")).is_ok();
        }
        Change::Idle { ours, .. } => set_yielding(&agent.groups, &entry.group, *ours),
        Change::Weight { ours, .. } => agent.groups.set_weight_raw(&entry.group, *ours),
        Change::Cpuset { ours, .. } => agent.groups.set_cpuset(&entry.group, ours),
        Change::Group
        | Change::Membership { .. }
        | Change::Latency(_)
        | Change::Units(_)
        | Change::Boost(_) => {
            return false;
        }
    };
    written.inspect_err(|error| warn!("{error}")).is_ok()
}
