//! What happens in a machine, for those who write it down.

use crate::Ns;
use crate::ids::{CpuId, GroupId, SeriesId, TaskId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A CPU turned from one task to another (none is idle).
    Switch {
        cpu: CpuId,
        prev: Option<TaskId>,
        next: Option<TaskId>,
        /// Whether the one who ran is still runnable (it was preempted).
        prev_runs_on: bool,
    },
    /// A task became runnable and was placed.
    Wake {
        task: TaskId,
        /// The CPU it was placed on.
        cpu: CpuId,
    },
    /// A task was created.
    Fork {
        /// By whom (none: from outside).
        parent: Option<TaskId>,
        child: TaskId,
    },
    /// A group ran out of quota on a CPU.
    Throttle { group: GroupId, cpu: CpuId },
    /// A group may run again on a CPU.
    Unthrottle { group: GroupId, cpu: CpuId },
    /// A period of a group's limit turned over.
    Refill { group: GroupId, runtime_ns: i64 },
    /// One of a group's files was written from outside.
    Write {
        group: GroupId,
        /// Quota and period in us, where it is a limit.
        limit_us: Option<(u64, u64)>,
    },
    /// A program recorded a value.
    Record {
        task: TaskId,
        series: SeriesId,
        value: u64,
    },
}

pub trait Tracer: Send {
    /// One event, in order of time.
    fn event(&mut self, now_ns: Ns, event: &Event);
}
