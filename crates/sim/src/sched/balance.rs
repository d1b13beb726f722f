//! Moving tasks that wait to CPUs with less to do: a simple rule. A CPU that
//! runs out of work takes one waiting task from the most crowded CPU.

use super::{Sched, migrate};
use crate::ids::CpuId;
use crate::kernel::Kernel;

/// A CPU is about to become idle; true if something was moved there.
pub(crate) fn newidle(k: &mut Kernel, sched: &mut Sched, cpu: CpuId) -> bool {
    let busiest = (0..k.cpus.len() as u32)
        .map(CpuId)
        .filter(|&other| other != cpu && k.cpus[other.index()].nr_runnable > 1)
        .max_by_key(|&other| (k.cpus[other.index()].nr_runnable, std::cmp::Reverse(other)));
    let Some(from) = busiest else { return false };
    let c = &k.cpus[from.index()];
    let fits = |&&task: &&crate::ids::TaskId| {
        c.curr != Some(task) && k.allowed(task, cpu) && sched.movable(k, task)
    };
    let Some(&task) = c.queued.iter().find(fits) else {
        return false;
    };
    migrate(k, sched, task, cpu);
    true
}

/// A CPU's tick, or a moment at which idle CPUs look around.
pub(crate) fn periodic(k: &mut Kernel, sched: &mut Sched, cpu: CpuId) {
    if k.now < k.cpus[cpu.index()].balance_at {
        return;
    }
    k.cpus[cpu.index()].balance_at = k.now + 4 * k.cfg.tick_ns;
    let (mut idle, mine) = (k.idle.first(), k.cpus[cpu.index()].nr_runnable);
    while let Some(other) = idle
        && mine > 1
    {
        if newidle(k, sched, other) {
            return;
        }
        idle = k.idle.next_from(CpuId(other.0 + 1));
    }
    // The one with the least takes from the one with two more.
    let most = k.cpus.iter().map(|c| c.nr_runnable).max().unwrap_or(0);
    if mine + 1 < most {
        newidle(k, sched, cpu);
    }
}
