//! Where a woken or new task goes: a simple rule. An allowed idle CPU, looked for
//! from the last one on; else the one with the fewest who want to run.

use crate::ids::{CpuId, TaskId};
use crate::kernel::Kernel;

/// Who wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waker {
    /// A task, on this CPU; `sync`: it is about to sleep itself (a pipe's writer).
    Task {
        /// The waker.
        task: TaskId,
        /// Where it runs.
        cpu: CpuId,
        /// Whether it says so.
        sync: bool,
    },
    /// A timer, which fires where the task set it: on the CPU that it ran on.
    Timer,
}

/// The CPU for a task that wakes.
pub(crate) fn select_wake(k: &Kernel, task: TaskId, waker: Waker) -> CpuId {
    let last = k.task(task).cpu;
    match waker {
        Waker::Task {
            cpu, sync: true, ..
        } if k.allowed(task, cpu) && k.cpus[cpu.index()].nr_runnable == 1 && last == cpu => cpu,
        Waker::Task { .. } | Waker::Timer => idlest(k, task, last),
    }
}

/// The CPU for a new task.
pub(crate) fn select_new(k: &Kernel, task: TaskId, parent: CpuId) -> CpuId {
    idlest(k, task, parent)
}

fn idlest(k: &Kernel, task: TaskId, from: CpuId) -> CpuId {
    let cpus = k.cpus.len() as u32;
    let order = (0..cpus).map(|i| CpuId((from.0 + i) % cpus));
    let mut allowed = order.filter(|&cpu| k.allowed(task, cpu));
    let crowd = |cpu: &CpuId| {
        let c = &k.cpus[cpu.index()];
        c.nr_runnable + u32::from(c.nr_runnable == 0 && c.curr.is_some())
    };
    allowed.by_ref().min_by_key(crowd).unwrap_or(from)
}
