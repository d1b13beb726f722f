//! Many entries with one write of the file: where thousands of groups get terms at once, a file for each would keep the last waiting for
//! a minute.

use super::entries::Entries;
use super::{Change, Entry, Ledger, LedgerError};

/// When the file is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StoreWhen {
    /// Before each knob, and after each that was put back.
    #[default]
    Always,
    /// Entries of knobs that were put back stay in the file for now, which is harmless: they will be found at their old values.
    ForgottenLater,
    /// A rehearsal's: nothing is written.
    Never,
}

impl Ledger {
    /// Nothing is written from here on, neither here nor, by its caller, to a knob.
    pub fn keep_in_memory(&mut self) {
        self.store_when = StoreWhen::Never;
    }

    /// Until [`Ledger::store_forgotten`], what is forgotten stays in the file.
    pub fn forget_later(&mut self) {
        if self.store_when == StoreWhen::Always {
            self.store_when = StoreWhen::ForgottenLater;
        }
    }

    /// Ends [`Ledger::forget_later`].
    ///
    /// # Errors
    /// The file cannot be written; what is in it is harmless.
    pub fn store_forgotten(&mut self) -> Result<(), LedgerError> {
        if self.store_when != StoreWhen::ForgottenLater {
            return Ok(());
        }
        self.store_when = StoreWhen::Always;
        self.store()?;
        self.let_slots_go();
        Ok(())
    }

    /// Records at once what `rehearsed`, which was opened on a copy of this file at `next_id`, has recorded one by one. The same records
    /// are then made again, each before its knob, and find themselves here. Moving limits are left out: each takes a slot of its own.
    ///
    /// # Errors
    /// The file cannot be written; then nothing is recorded.
    pub fn record_rehearsed(
        &mut self,
        rehearsed: &Ledger,
        next_id: u64,
    ) -> Result<(), LedgerError> {
        let before: Vec<Entry> = self.entries().cloned().collect();
        let next_before = self.next_id;
        let moves = |entry: &&Entry| rehearsed.moving.get(entry.id).is_some();
        let of_gate = rehearsed.entries().filter(|entry| !moves(entry));
        for entry in of_gate {
            let known = self.get(entry.id).filter(|_| entry.id < next_id);
            let id = match known {
                // Only a gate's own quota changes by what the gate asks for; the loops change the others.
                Some(known) if known.change == entry.change || !is_own_quota(&entry.change) => {
                    continue;
                }
                Some(known) => known.id,
                None if entry.id < next_id => continue,
                None => {
                    self.next_id += 1;
                    self.next_id - 1
                }
            };
            self.entries.put(Entry {
                id,
                ..entry.clone()
            });
        }
        self.store().inspect_err(|_| {
            self.entries = Entries::default();
            before.into_iter().for_each(|entry| self.entries.put(entry));
            self.next_id = next_before;
        })
    }

    /// The number of the next entry.
    pub fn next_id(&self) -> u64 {
        self.next_id
    }

    /// An entry that is still in the file must have its slot, or its limit could not be told for ours.
    pub(super) fn let_slots_go(&self) {
        self.moving.retain(|id| self.has(id));
    }
}

fn is_own_quota(change: &Change) -> bool {
    matches!(change, Change::Bandwidth { .. })
}
