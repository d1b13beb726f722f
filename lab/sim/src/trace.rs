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
    /// A task began to wait.
    Sleep {
        task: TaskId,
        /// The CPU it ran on.
        cpu: CpuId,
    },
    /// A task was created.
    Fork {
        /// By whom (none: from outside).
        parent: Option<TaskId>,
        child: TaskId,
    },
    Exit {
        task: TaskId,
    },
    /// A runnable task was moved by balancing.
    Migrate {
        task: TaskId,
        from: CpuId,
        to: CpuId,
    },
    /// A group ran out of quota on a CPU.
    Throttle {
        group: GroupId,
        cpu: CpuId,
    },
    /// A group may run again on a CPU.
    Unthrottle {
        group: GroupId,
        cpu: CpuId,
    },
    /// A period of a group's limit turned over.
    Refill {
        group: GroupId,
        runtime_ns: i64,
    },
    /// One of a group's files was written from outside.
    Write {
        group: GroupId,
        what: GroupFile,
    },
    /// A program recorded a value.
    Record {
        task: TaskId,
        series: SeriesId,
        value: u64,
    },
}

/// A file of a group, and what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupFile {
    /// cpu.max: quota (none: max) and period.
    Max {
        quota_us: Option<u64>,
        period_us: u64,
    },
    Weight(u32),
    Idle(bool),
    /// cpuset.cpus: how many CPUs it names.
    Cpus(u32),
}

pub trait Tracer: Send {
    /// One event, in order of time.
    fn event(&mut self, now_ns: Ns, event: &Event);
}
