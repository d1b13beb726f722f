//! What the kernel counted of a gate at the last poll, for the limit that holds it back.

use tidegate_api::HeldView;
use tidegate_engine::held::TaskPoll;

/// What was counted at the last poll.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldState {
    /// The time of the last poll; 0 before the first.
    pub at_ns: u64,
    /// Periods in which its own limit throttled it so far.
    pub own: u64,
    /// Periods in which the quota that moves throttled the group that it is in.
    pub root: u64,
    /// Periods in which limits of other groups around it throttled those.
    pub parent: u64,
    pub tasks: TaskPoll,
    pub view: HeldView,
}
