//! The agent: its parts, each with the locks that it needs.
//!
//! Locks, always taken in this order: the policy's, the gates', the control loop's, the journal's;
//! the others are held for a moment each. The loop takes its own, and the journal's for a write, so
//! no call holds the loop's while it reads files, nor the journal's while it moves a process.

use crate::gates::Gates;
use crate::kept_policy::Policy;
use crate::process::Life;
use crate::runtime::Runtime;
use crate::view::SharedStatus;

pub struct Agent {
    pub gates: Gates,
    pub(crate) policy: Policy,
    pub runtime: Runtime,
    pub life: Life,
    pub shared_status: SharedStatus,
}

#[cfg(test)]
impl Agent {
    pub(crate) fn groups(&self) -> &std::sync::Arc<tidegate_cgroup::group::Groups> {
        &self.runtime.kernel.groups
    }
}
