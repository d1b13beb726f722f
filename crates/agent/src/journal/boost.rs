//! Boosts of lock holders, in the journal.

use tidegate_knobs::group::GroupPath;
use tidegate_knobs::ledger::{Change, Entry, Fallback};
use tidegate_knobs::locks::boost::{Boost, give};

use super::{Journal, JournalError};

impl Journal {
    /// Tasks of `group` are about to be boosted.
    pub fn record_boost(
        &mut self,
        group: &GroupPath,
        gate: &str,
        boost: Boost,
    ) -> Result<u64, JournalError> {
        // Only the agent counts turns: without one they end.
        let entry = self.new_entry(group, gate, Change::Boost(boost), Fallback::Restore)?;
        Ok(self.ledger.record(entry)?)
    }

    /// Gives the tasks of an entry their turn; false where the entry is gone, as when its gate has just ended.
    pub fn start_boost(&self, id: u64) -> Result<bool, JournalError> {
        let Some(entry) = self.ledger.get(id) else {
            return Ok(false);
        };
        let Change::Boost(boost) = &entry.change else {
            return Ok(false);
        };
        let refused = |error| JournalError::Ledger(tidegate_knobs::ledger::LedgerError::Kfs(error));
        give(&**self.groups.fs(), boost).map_err(refused)?;
        Ok(true)
    }

    /// The turns of an entry are over.
    pub fn end_boost(&mut self, id: u64) -> Vec<String> {
        self.restore_lines(|entry| entry.id == id)
    }
}

pub(crate) fn is_boost(entry: &Entry) -> bool {
    matches!(entry.change, Change::Boost(_))
}
