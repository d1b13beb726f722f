//! Many entries in a short time. Where thousands of groups get terms at once, replacing the whole
//! file for each entry would keep the last group waiting for a minute: in a batch each entry is a
//! line that is added to a second file, before its knob as ever, and the end of the batch stores
//! the whole.
//!
//! ```text
//! ledger.json    {"next_id":17, "entries":[..]}    as it was when the batch began
//! ledger.batch   {"boot_id":"..", "next_id":17}    the state that it goes on from
//!                {"id":18, ..}                     new entries, and new forms of earlier ones: the last form counts
//! ```
//!
//! What is forgotten meanwhile stays in both, which is harmless: its knob will be found at its old
//! value, or gone. A batch whose removal failed does not count any more: the whole that its end
//! stored is a later state, and has all its numbers.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

use super::{Ledger, LedgerError, unwritten};

const FILE: &str = "ledger.batch";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StoreWhen {
    /// All entries before each knob, and after each that was put back.
    #[default]
    Always,
    Batched,
    Never,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct BatchHead {
    pub boot_id: String,
    pub next_id: u64,
}

impl Ledger {
    /// Nothing is written from here on, neither here nor, by its caller, to a knob.
    pub fn keep_in_memory(&mut self) {
        self.store_when = StoreWhen::Never;
    }

    /// Until [`Ledger::end_batch`], an entry is written down by itself, and what is forgotten stays
    /// in the files.
    pub fn begin_batch(&mut self) -> Result<(), LedgerError> {
        if self.store_when != StoreWhen::Always {
            return Ok(());
        }
        // Where the last write failed, the file is older than what is in memory.
        self.store()?;
        let head = BatchHead {
            boot_id: self.boot_id.clone(),
            next_id: self.next_id,
        };
        let head = serde_json::to_vec(&head).expect("a head is plain data");
        self.fs
            .replace(&self.batch_file(), &head)
            .map_err(unwritten)?;
        // So that no later state is taken for the one that the batch goes on from.
        self.next_id += 1;
        self.store_when = StoreWhen::Batched;
        Ok(())
    }

    /// Stores the whole, and each entry with the whole from here on.
    pub fn end_batch(&mut self) -> Result<(), LedgerError> {
        if self.store_when != StoreWhen::Batched {
            return Ok(());
        }
        self.store_when = StoreWhen::Always;
        self.store()?;
        self.remove_batch();
        self.let_slots_go();
        Ok(())
    }

    pub(super) fn batch_file(&self) -> PathBuf {
        self.path.with_file_name(FILE)
    }

    pub(super) fn remove_batch(&self) {
        let file = self.batch_file();
        if self.fs.stat(&file).is_ok()
            && let Err(error) = self.fs.unlink(&file)
        {
            tracing::warn!("{error}; it stays, and does not count any more");
        }
    }

    /// Writes down the entries of these numbers, which are new or have another form.
    pub(super) fn write_down(&self, ids: impl Iterator<Item = u64>) -> Result<(), LedgerError> {
        if self.store_when != StoreWhen::Batched {
            return self.store();
        }
        let mut lines = Vec::new();
        for id in ids {
            // The line's end comes first: a part of a line that found no room spoils no other.
            lines.push(b'\n');
            serde_json::to_writer(&mut lines, &self.get(id)).expect("entries are plain data");
        }
        self.fs
            .append(&self.batch_file(), &lines)
            .map_err(unwritten)
    }

    /// An entry that is still in the file must have its slot, or its limit could not be told for
    /// ours.
    pub(super) fn let_slots_go(&self) {
        self.moving.retain(|id| self.has(id));
    }
}
