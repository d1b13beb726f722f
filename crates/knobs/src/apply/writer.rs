//! Where the loop's writes go: the journal first, then the group.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::idle_class::{leave_idle_class, set_yielding};
use super::journal::Journal;
use crate::bandwidth::Bandwidth;
use crate::control::Apply;
use crate::group::{GroupPath, Groups};
use crate::sync::lock;

/// Quotas go to the journal, then to the group.
pub struct QuotaWriter {
    /// The way to groups.
    pub groups: Arc<Groups>,
    /// What was written over what.
    pub journal: Arc<Mutex<Journal>>,
    /// The group that yields by the least weight while this is set, and not in the idle class.
    pub out_of_idle: (GroupPath, Arc<AtomicBool>),
}

impl Apply for QuotaWriter {
    fn set_quota(
        &mut self,
        group: &GroupPath,
        from: Option<Bandwidth>,
        to: Bandwidth,
    ) -> Result<(), String> {
        let from = match from {
            Some(from) => from,
            None => self
                .groups
                .bandwidth(group)
                .map_err(|error| error.to_string())?,
        };
        lock(&self.journal)
            .write_quota(group, &from, &to)
            .map_err(|error| error.to_string())
    }

    fn set_yielding(&mut self, group: &GroupPath, yielding: bool) -> Result<(), String> {
        let mut journal = lock(&self.journal);
        if *group == self.out_of_idle.0 && self.out_of_idle.1.load(Ordering::Acquire) {
            return leave_idle_class(&mut journal, group, yielding)
                .map_err(|error| error.to_string());
        }
        journal
            .record_idle_class_change(group, yielding)
            .map_err(|error| error.to_string())?;
        set_yielding(&self.groups, group, yielding).map_err(|error| {
            // It stands as before; a ledger that says otherwise would take that for an outside write.
            let _ = journal.record_idle_class_change(group, !yielding);
            error.to_string()
        })
    }

    fn set_background(&mut self, group: &GroupPath, background: bool) -> Result<(), String> {
        lock(&self.journal)
            .set_background(group, background)
            .map_err(|error| error.to_string())
    }
}
