//! Real-time tasks: above every class, by priority, first come first served.
//!
//! Left out: real-time throttling, round robin, and pushing tasks that wait to
//! other CPUs once they are placed.

use crate::ids::{CpuId, TaskId};
use crate::kernel::Kernel;
use crate::spec::Policy;

fn prio(k: &Kernel, task: TaskId) -> u8 {
    match k.task(task).policy {
        Policy::Fifo { prio } => prio,
        _ => 0,
    }
}

/// Queues a task that waits: behind its equals, or before them if it was preempted.
pub(crate) fn enqueue(k: &mut Kernel, cpu: CpuId, task: TaskId, preempted: bool) {
    let mine = prio(k, task);
    let queue = &k.cpus[cpu.index()].fifo;
    let at = queue.iter().position(|&other| {
        let other = prio(k, other);
        if preempted {
            other <= mine
        } else {
            other < mine
        }
    });
    let queue = &mut k.cpus[cpu.index()].fifo;
    queue.insert(at.unwrap_or(queue.len()), task);
}

/// Takes a waiting task off.
pub(crate) fn dequeue(k: &mut Kernel, cpu: CpuId, task: TaskId) {
    k.cpus[cpu.index()].fifo.retain(|&other| other != task);
}

/// Which real-time task runs: the running one unless a higher one waits.
pub(crate) fn pick(k: &Kernel, cpu: CpuId, running: Option<TaskId>) -> Option<TaskId> {
    let waiting = k.cpus[cpu.index()].fifo.front().copied();
    match (running, waiting) {
        (Some(run), Some(wait)) if prio(k, wait) > prio(k, run) => Some(wait),
        (Some(run), _) => Some(run),
        (None, wait) => wait,
    }
}

/// Where a real-time task goes: its own CPU if it preempts there, else an idle
/// one, else the first on which it preempts.
pub(crate) fn select_cpu(k: &Kernel, task: TaskId) -> CpuId {
    let mine = prio(k, task);
    let own = k.task(task).cpu;
    let beats = |cpu: CpuId| {
        k.cpus[cpu.index()]
            .curr
            .is_none_or(|curr| prio(k, curr) < mine)
    };
    if k.allowed(task, own) && beats(own) {
        return own;
    }
    let allowed = k.cold[task.index()].allowed;
    let mut found = None;
    let mut next = allowed.first();
    while let Some(cpu) = next {
        if k.idle.contains(cpu) {
            return cpu;
        }
        if found.is_none() && beats(cpu) {
            found = Some(cpu);
        }
        next = allowed.next_from(CpuId(cpu.0 + 1));
    }
    found.or(allowed.first()).unwrap_or(own)
}
