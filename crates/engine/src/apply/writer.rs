//! Where the loop's writes go: the journal first, then the group.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::idle_class::leave_idle_class;
use super::journal::{Journal, JournalError};
use crate::control::{Apply, ApplyError};
use crate::sync::lock;
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::class::set_yielding;
use tidegate_cgroup::group::{GroupError, GroupPath, Groups};

/// Quotas go to the journal, then to the group.
pub struct QuotaWriter {
    pub groups: Arc<Groups>,
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
    ) -> Result<(), ApplyError> {
        let from = match from {
            Some(from) => from,
            None => self.groups.bandwidth(group)?,
        };
        Ok(lock(&self.journal).write_quota(group, &from, &to)?)
    }

    fn set_yielding(&mut self, group: &GroupPath, yielding: bool) -> Result<(), ApplyError> {
        let mut journal = lock(&self.journal);
        if *group == self.out_of_idle.0 && self.out_of_idle.1.load(Ordering::Acquire) {
            return Ok(leave_idle_class(&mut journal, group, yielding)?);
        }
        journal.record_idle_class_change(group, yielding)?;
        set_yielding(&self.groups, group, yielding).map_err(|error| {
            // It stands as before; a ledger that says otherwise would take that for an outside
            // write.
            let _ = journal.record_idle_class_change(group, !yielding);
            error.into()
        })
    }

    fn set_background(&mut self, group: &GroupPath, background: bool) -> Result<(), ApplyError> {
        Ok(lock(&self.journal).set_background(group, background)?)
    }
}

/// Errors of the process or of the tree, not of one value in one file.
fn is_incapable(errno: Option<i32>) -> bool {
    matches!(
        errno,
        Some(
            libc::EMFILE
                | libc::ENFILE
                | libc::ENOMEM
                | libc::EIO
                | libc::EROFS
                | libc::EPERM
                | libc::EACCES
        )
    )
}

impl From<GroupError> for ApplyError {
    fn from(error: GroupError) -> Self {
        Self {
            is_incapable: is_incapable(error.errno()),
            message: error.to_string(),
        }
    }
}

impl From<JournalError> for ApplyError {
    fn from(error: JournalError) -> Self {
        let is_incapable = match &error {
            JournalError::Ledger(_) => true,
            JournalError::Group(group) => is_incapable(group.errno()),
            JournalError::NotMoving(_) | JournalError::Divided(_) => false,
        };
        Self {
            is_incapable,
            message: error.to_string(),
        }
    }
}
