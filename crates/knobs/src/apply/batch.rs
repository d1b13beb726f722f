//! The journal of thousands of changes at once: see `ledger/batch.rs`.

use std::ops::Range;

use super::journal::{Journal, JournalError};

impl Journal {
    /// A rehearsal's: nothing is written down.
    pub fn keep_in_memory(&mut self) {
        self.ledger.keep_in_memory();
    }

    /// The number of the next entry.
    pub fn next_id(&self) -> u64 {
        self.ledger.next_id()
    }

    /// Records at once what a rehearsal recorded, which began at entry `next_id`; the numbers of the new entries.
    pub fn record_rehearsed(
        &mut self,
        rehearsed: &Journal,
        next_id: u64,
    ) -> Result<Range<u64>, JournalError> {
        let first = self.next_id();
        self.ledger.record_rehearsed(&rehearsed.ledger, next_id)?;
        Ok(first..self.next_id())
    }

    /// What is put back from here on is struck off the file by [`Journal::store_forgotten`].
    pub fn forget_later(&mut self) {
        self.ledger.forget_later();
    }

    /// Strikes it off; entries of `rehearsed` whose change was not made in the end, too: `is_made` knows the gates that were.
    pub fn store_forgotten(&mut self, rehearsed: Range<u64>, is_made: impl Fn(&str) -> bool) {
        let is_idle =
            |entry: &crate::ledger::Entry| rehearsed.contains(&entry.id) && !is_made(&entry.gate);
        let forgotten = self.ledger.forget(is_idle).map(drop);
        if let Err(error) = forgotten.and_then(|()| self.ledger.store_forgotten()) {
            tracing::warn!("{error}");
        }
    }
}
