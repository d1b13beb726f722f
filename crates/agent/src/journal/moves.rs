//! Moved processes in the journal.

use tidegate_knobs::group::Placement;
use tidegate_knobs::ledger::{Change, Entry};

use super::Journal;

impl Journal {
    /// The processes that were moved for `gate`, with their start times.
    pub fn moves_of(&self, gate: &str) -> Vec<(Placement, u64)> {
        let moved = |entry: &Entry| match &entry.change {
            Change::Membership {
                start_ticks,
                placement,
            } if entry.gate == gate => Some((placement.clone(), *start_ticks)),
            _ => None,
        };
        self.ledger.entries().iter().filter_map(moved).collect()
    }
}
