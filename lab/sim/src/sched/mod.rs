//! Who runs next: the boundary between the machine and its scheduling classes.
//!
//! The machine ([`crate::machine`]) owns CPUs, tasks, time and the one switch from task to
//! task; the fair class ([`Fair`]) owns its queues. What the machine asks of the class:
//!
//! - `add_group`, `add_task`: before anything else names them.
//! - `select_wake`, `select_new`: where a task that wakes or is new should go. Must be allowed.
//! - `enqueue` / `dequeue`: the task becomes runnable on a CPU, or leaves. The
//!   class keeps [`Kernel::list_add`]/[`Kernel::list_del`] and the counts of
//!   [`crate::kernel::Cpu`] (`nr_runnable`, `nr_idle`) right. A
//!   running task that sleeps is dequeued while it still runs; `switch` follows
//!   at the same instant.
//! - `check_preempt`: a task has been queued on a CPU that runs another of the
//!   class; the class calls [`Kernel::resched`] if that is to give way.
//! - `pick`: whose turn it is, with the running one among the candidates if it
//!   is still queued; `None` if there is none. Changes nothing but what time
//!   has brought about (charges, throttling).
//! - `switch`: `pick`'s answer takes effect: `prev` and `next` are the class's
//!   own tasks or `None` (idle).
//! - `update_curr`: [`Kernel::charge`] and what the class charges for it.
//! - `tick`: every `tick_ns` on a CPU that runs one of its tasks.
//! - `period`, `slack`: timers that it set through
//!   [`crate::event::EventQueue::set_timer`].
//! - the setters: a file of a group was written; values are in [`Kernel::groups`] already.
//!
//! The class may call [`Kernel::resched`] at any time: the CPU chooses again
//! before time goes on. It never moves the clock and never runs programs.

pub(crate) mod balance;
pub(crate) mod fair;
pub(crate) mod place;

use crate::ids::{CpuId, TaskId};
use crate::kernel::Kernel;
pub(crate) use fair::{Dequeue, Fair, verify};

/// Moves a runnable task that does not run to another CPU.
pub(crate) fn migrate(k: &mut Kernel, sched: &mut Fair, task: TaskId, to: CpuId) {
    let from = k.task(task).cpu;
    debug_assert_ne!(
        k.cpus[from.index()].curr,
        Some(task),
        "a running task is put first"
    );
    sched.dequeue(k, from, task, Dequeue::Move);
    let cost = k.cfg.costs.migrate_ns;
    let t = k.task_mut(task);
    t.cpu = to;
    t.overhead_ns += cost;
    sched.enqueue(k, to, task, false);
    preempt(k, sched, to, task);
}

/// A task has been queued on a CPU: is it to run at once?
pub(crate) fn preempt(k: &mut Kernel, sched: &mut Fair, cpu: CpuId, new: TaskId) {
    match k.cpus[cpu.index()].curr {
        None => k.resched(cpu),
        Some(curr) => sched.check_preempt(k, cpu, new, curr),
    }
}
