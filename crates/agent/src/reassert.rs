//! What is ours and was written over by somebody else, written again.

use tidegate_knobs::ledger::{Change, Entry};
use tracing::warn;

use crate::limits::set_yielding;
use crate::looper::lock;
use crate::owner::Owner;

/// Writes again what somebody else wrote over; false where that is not done.
pub(crate) fn reassert(owner: &Owner, entry: &Entry) -> bool {
    let written = match &entry.change {
        Change::Bandwidth { .. } => {
            // One of the loop's is written by the loop.
            lock(&owner.control).quotas.invalidate(&entry.group);
            // Beside the scheduler the loop writes none: the copies are.
            if owner.ext.holds()
                && let Err(refusal) = owner.write_mirrors()
            {
                warn!("{}", refusal.message);
                return false;
            }
            return match lock(&owner.books).reassert_own(&entry.group) {
                Ok(_) => true,
                Err(error) => {
                    warn!("{error}");
                    false
                }
            };
        }
        Change::Background { .. } => {
            lock(&owner.control).softs.invalidate(&entry.group);
            if !owner.ext.holds() {
                return true;
            }
            let written = lock(&owner.books).set_background(&entry.group, true);
            return written.inspect_err(|error| warn!("{error}")).is_ok();
        }
        Change::Idle { ours, .. } => set_yielding(&owner.groups, &entry.group, *ours),
        Change::Weight { ours, .. } => owner.groups.set_weight_raw(&entry.group, *ours),
        Change::Cpuset { ours, .. } => owner.groups.set_cpuset(&entry.group, ours),
        Change::Group
        | Change::Membership { .. }
        | Change::Latency(_)
        | Change::Units(_)
        | Change::First(_) => {
            return false;
        }
    };
    written.inspect_err(|error| warn!("{error}")).is_ok()
}
