//! What happens in a machine, for those who write it down.

use crate::Ns;
use crate::ids::{CpuId, GroupId, SeriesId, TaskId};

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A CPU turned from one task to another (none is idle).
    Switch {
        /// Where.
        cpu: CpuId,
        /// Who ran.
        prev: Option<TaskId>,
        /// Who runs now.
        next: Option<TaskId>,
        /// Whether the one who ran is still runnable (it was preempted).
        prev_runs_on: bool,
    },
    /// A task became runnable and was placed.
    Wake {
        /// Who.
        task: TaskId,
        /// The CPU it was placed on.
        cpu: CpuId,
    },
    /// A task began to wait.
    Sleep {
        /// Who.
        task: TaskId,
        /// The CPU it ran on.
        cpu: CpuId,
    },
    /// A task was created.
    Fork {
        /// By whom (none: from outside).
        parent: Option<TaskId>,
        /// Who.
        child: TaskId,
    },
    /// A task ended.
    Exit {
        /// Who.
        task: TaskId,
    },
    /// A runnable task was moved by balancing.
    Migrate {
        /// Who.
        task: TaskId,
        /// From where.
        from: CpuId,
        /// To where.
        to: CpuId,
    },
    /// A group ran out of quota on a CPU.
    Throttle {
        /// Which group.
        group: GroupId,
        /// Where.
        cpu: CpuId,
    },
    /// A group may run again on a CPU.
    Unthrottle {
        /// Which group.
        group: GroupId,
        /// Where.
        cpu: CpuId,
    },
    /// A period of a group's limit turned over.
    Refill {
        /// Which group.
        group: GroupId,
        /// What its pool holds now.
        runtime_ns: i64,
    },
    /// One of a group's files was written from outside.
    Write {
        /// Which group.
        group: GroupId,
        /// Which knob.
        what: Knob,
    },
    /// A program recorded a value.
    Record {
        /// Who.
        task: TaskId,
        /// Into which series.
        series: SeriesId,
        /// What.
        value: u64,
    },
}

/// A file of a group, and what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knob {
    /// cpu.max: quota (none: max) and period.
    Max {
        /// Quota.
        quota_us: Option<u64>,
        /// Period.
        period_us: u64,
    },
    /// cpu.weight.
    Weight(u32),
    /// cpu.idle.
    Idle(bool),
    /// cpuset.cpus: how many CPUs it names.
    Cpus(u32),
}

/// Who writes it down.
pub trait Tracer: Send {
    /// One event, in order of time.
    fn event(&mut self, now_ns: Ns, event: &Event);
}
