//! What the step writes to, as it sees it.

use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::group::GroupPath;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApplyError {
    /// Not for what was to be written, nor since the group is gone: this process cannot write (no
    /// descriptor left, a read-only tree). Another one may.
    pub is_incapable: bool,
    pub message: String,
}

impl From<String> for ApplyError {
    fn from(message: String) -> Self {
        let is_incapable = false;
        Self {
            is_incapable,
            message,
        }
    }
}

/// Puts a quota on a group: ledger first, then the kernel file.
pub trait Apply {
    /// `from` is what stands, if known. After an error the planner writes again in a later step.
    fn set_quota(
        &mut self,
        group: &GroupPath,
        from: Option<Bandwidth>,
        to: Bandwidth,
    ) -> Result<(), ApplyError>;
    /// Puts the group into the idle class (where side work belongs) or takes it out.
    fn set_yielding(&mut self, group: &GroupPath, yielding: bool) -> Result<(), ApplyError>;
    fn set_background(&mut self, group: &GroupPath, background: bool) -> Result<(), ApplyError>;
}
