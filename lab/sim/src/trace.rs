//! What happens in a machine, for those who count it.

use crate::Ns;
use crate::ids::{GroupId, TaskId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A CPU turned to another task, or to none.
    Switch { next: Option<TaskId> },
    /// A task became runnable and was placed.
    Wake { task: TaskId },
    /// A task was created.
    Fork {
        /// By whom (none: from outside).
        parent: Option<TaskId>,
        child: TaskId,
    },
    /// One of a group's files was written from outside.
    Write { group: GroupId },
}

pub trait Tracer: Send {
    /// One event, in order of time.
    fn event(&mut self, now_ns: Ns, event: &Event);
}
