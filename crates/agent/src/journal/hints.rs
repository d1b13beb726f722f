//! Latency hints in the journal.

use tidegate_knobs::group::GroupPath;
use tidegate_knobs::ledger::{Change, Entry, Fallback, LedgerError, NewEntry};
use tidegate_knobs::sched::hint::Latency;
use tidegate_knobs::sched::tasks::Whose;

use super::{Journal, JournalError};
use crate::mechanisms::HintPlace;

impl Journal {
    /// The latency hint of a gate.
    pub fn latency_of(&self, gate: &str) -> Option<Entry> {
        let of_gate =
            |entry: &&Entry| entry.gate == gate && matches!(entry.change, Change::Latency(_));
        self.ledger.entries().iter().find(of_gate).cloned()
    }

    /// Tasks of `group`, or of a process, are about to get a hint.
    pub fn record_hint(
        &mut self,
        group: &GroupPath,
        gate: &str,
        latency: Latency,
        fallback: Fallback,
    ) -> Result<Entry, JournalError> {
        let entry = match latency.whose {
            Whose::Group => self.new_entry(group, gate, Change::Latency(latency), fallback)?,
            // It may go from group to group.
            Whose::Process(_) => NewEntry {
                gate: gate.to_owned(),
                group: group.clone(),
                group_id: 0,
                change: Change::Latency(latency),
                fallback,
            },
        };
        let id = self.ledger.record(entry)?;
        let entry = self.ledger.get(id).cloned();
        entry.ok_or(JournalError::Ledger(LedgerError::NoEntry { id }))
    }

    /// Every gate's hint.
    pub(crate) fn hints(&self) -> Vec<HintPlace> {
        let of = |entry: &Entry| match &entry.change {
            Change::Latency(latency) => Some(HintPlace {
                gate: entry.gate.clone(),
                group: entry.group.clone(),
                whose: latency.whose,
                ours: latency.ours,
            }),
            _ => None,
        };
        self.ledger.entries().iter().filter_map(of).collect()
    }

    /// Forgets one entry.
    pub fn forget_entry(&mut self, id: u64) {
        if let Err(error) = self.ledger.forget(|entry| entry.id == id) {
            tracing::warn!("{error}");
        }
    }
}
