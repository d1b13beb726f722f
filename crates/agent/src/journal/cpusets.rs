//! Which CPUs a group was confined to, and what it had before.

use tidegate_knobs::group::GroupPath;
use tidegate_knobs::ledger::{Change, Entry, Fallback};

use super::{Journal, JournalError};

impl Journal {
    /// `group` is about to be confined to these CPUs; where it is not in the journal yet, it had `was`.
    pub fn record_cpuset(
        &mut self,
        group: &GroupPath,
        was: &[u32],
        to: &[u32],
    ) -> Result<(), JournalError> {
        let is_cpuset = |change: &Change| matches!(change, Change::Cpuset { .. });
        if let Some(id) = self.entry(group, is_cpuset).map(|entry| entry.id) {
            self.ledger.update(id, |entry| {
                if let Change::Cpuset { previous, ours, .. } = &mut entry.change {
                    *previous = std::mem::replace(ours, to.to_vec());
                }
            })?;
            return Ok(());
        }
        let change = Change::Cpuset {
            was: was.to_vec(),
            previous: was.to_vec(),
            ours: to.to_vec(),
        };
        // Without an agent side work stays where it is: that costs main nothing, and the quota is at the floor.
        let entry = self.new_entry(group, "", change, Fallback::Stay)?;
        self.ledger.record(entry)?;
        Ok(())
    }

    /// The CPUs that `group` was last confined to, where it is.
    pub fn confined(&self, group: &GroupPath) -> Option<Vec<u32>> {
        match self.entry(group, |change| matches!(change, Change::Cpuset { .. })) {
            Some(Entry {
                change: Change::Cpuset { ours, .. },
                ..
            }) => Some(ours.clone()),
            _ => None,
        }
    }
}
