//! Moving what waits from one CPU to another (detach_tasks, can_migrate_task).

use super::busiest::Amount;
use super::{Idle, Level, NICE_TRIES, Search};
use crate::Ns;
use crate::ids::{CpuId, TaskId};
use crate::kernel::Kernel;
use crate::sched::{Fair, migrate};
use crate::spec::Policy;

/// A task that ran within this time is cache-hot (sysctl_sched_migration_cost).
const HOT_NS: Ns = 500_000;
const CANDIDATES_MAX: usize = 32;

pub(super) enum PullResult {
    Tasks(u32),
    /// No task of that CPU, running or not, may run on the other.
    AllPinned,
}

/// Moves waiting tasks, the one that ran longest ago first.
pub(super) fn pull(
    k: &mut Kernel,
    sched: &mut Fair,
    search: &Search,
    src: CpuId,
    amount: Amount,
) -> PullResult {
    let &Search {
        dst, level, failed, ..
    } = search;
    let mut candidates: Vec<(Ns, TaskId)> = Vec::new();
    let mut all_pinned = true;
    for &task in k.cpus[src.index()].queued.iter() {
        if !sched.movable(k, task) || !k.allowed(task, dst) || sched.throttled_on(k, task, dst) {
            continue;
        }
        all_pinned = false;
        if k.cpus[src.index()].curr == Some(task) {
            continue;
        }
        let ran_ns = k.task(task).last_ran_ns;
        let hot = level != Level::Core
            && k.task(task).policy != Policy::Idle
            && k.now.saturating_sub(ran_ns) < HOT_NS
            && ran_ns > 0;
        if hot && failed <= NICE_TRIES {
            continue;
        }
        candidates.push((ran_ns, task));
        if candidates.len() == CANDIDATES_MAX {
            break;
        }
    }
    if all_pinned {
        return PullResult::AllPinned;
    }
    candidates.sort_unstable();
    let (mut moved, mut left) = (0, amount);
    for (_, task) in candidates {
        match &mut left {
            Amount::Tasks(tasks) => *tasks -= 1,
            Amount::Load(load) => {
                let task_load = sched.task_load(k, task).max(1);
                // A task larger than what is left would only turn the imbalance round; after
                // failures it goes.
                if task_load >> failed.min(16) > *load {
                    continue;
                }
                *load = load.saturating_sub(task_load);
            }
        }
        migrate(k, sched, task, dst);
        moved += 1;
        let enough = matches!(left, Amount::Tasks(0) | Amount::Load(0));
        // One is enough for a CPU that had none: the longer it looks, the later it runs.
        if enough || search.idle == Idle::New || k.cpus[src.index()].nr_runnable <= 1 {
            break;
        }
    }
    PullResult::Tasks(moved)
}
