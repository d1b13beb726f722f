//! Where a woken or a new task goes, by the rules of the kernel's fair class (Linux 6.12).
//!
//! A wakeup chooses between the CPU where the task ran last and the waker's (wake_affine), then
//! looks for an idle CPU that shares the choice's cache (select_idle_sibling): the choice itself,
//! the CPU before, the one used recently, a core with all threads idle, a sibling, any idle CPU of
//! the cache. A CPU that runs only idle-policy work counts as idle (`sched_idle_cpu`), except when
//! a whole core is looked for. A new task goes to the idlest cache, core and CPU (the slow path).
//!
//! Left out: asymmetric capacities, clusters below the cache, energy-aware placement, NUMA
//! distances, per-CPU kernel threads: the simulated machine has none of these.

mod fork;
#[cfg(test)]
mod tests;

use crate::Ns;
use crate::ids::{CpuId, TaskId};
use crate::kernel::Kernel;
use crate::sched::Fair;
pub(crate) use fork::idlest_cpu;

/// imbalance_pct of a domain above the core's.
const IMBALANCE_PERCENT: u64 = 117;
/// Flips of wakees are halved once a second.
const FLIPS_DECAY_NS: Ns = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waker {
    /// A task on this CPU that is about to sleep itself (a pipe's writer).
    Task { task: TaskId, cpu: CpuId },
    /// A timer, which fires where the task set it: on the CPU that it ran on.
    Timer,
}

#[derive(Clone, Copy, Default)]
struct TaskHistory {
    /// The CPU before the last.
    recent: Option<CpuId>,
    last_wakee: Option<TaskId>,
    /// How often the wakee changed, halved once a second.
    flips: u32,
    flips_since: Ns,
}

/// How many tasks a group of CPUs has for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Room {
    /// More CPUs than tasks.
    Spare,
    Full,
    Overloaded,
}

impl Room {
    pub(crate) fn of(running: u32, cpus: u32) -> Room {
        match running.cmp(&cpus) {
            std::cmp::Ordering::Less => Room::Spare,
            std::cmp::Ordering::Equal => Room::Full,
            std::cmp::Ordering::Greater => Room::Overloaded,
        }
    }
}

/// The state of wake placement.
#[derive(Default)]
pub(crate) struct Placement {
    tasks: Vec<TaskHistory>,
    /// Whether a cache may hold a core with all threads idle: a hint, as in the kernel. Set when a
    /// core becomes idle, cleared when a search finds none.
    idle_core: Vec<bool>,
    /// How many CPUs of a cache a search looks at (SIS_UTIL), by the cache's utilisation.
    scan: Vec<u32>,
}

impl Placement {
    pub(crate) fn new(k: &Kernel) -> Placement {
        let topology = &k.cfg.topology;
        let llcs = topology.llcs() as usize;
        Placement {
            tasks: Vec::new(),
            idle_core: vec![topology.threads_per_core() > 1; llcs],
            scan: vec![topology.cpus_per_llc(); llcs],
        }
    }

    /// To be called when a CPU has become idle.
    #[inline]
    pub(crate) fn became_idle(&mut self, k: &Kernel, cpu: CpuId) {
        let topology = &k.cfg.topology;
        if topology.threads_per_core() > 1 && core_is_idle(k, cpu) {
            self.idle_core[topology.llc_of(cpu) as usize] = true;
        }
    }

    /// Sets how many CPUs of a cache a search looks at (update_idle_cpu_scan): `(1 - (1.17 u)^2)`
    /// of them at a utilisation of `u`, none of an overloaded cache. `util_ppt` is the sum over its
    /// CPUs.
    pub(crate) fn note_utilisation(&mut self, k: &Kernel, llc: u32, util_ppt: u64) {
        let cpus = u64::from(k.cfg.topology.cpus_per_llc());
        // u <= 1000 ppt, times 117: u · u below 2^34.
        let share = (util_ppt / cpus).min(1000) * IMBALANCE_PERCENT;
        let left_ppm = 1_000_000u64.saturating_sub(share * share / 10_000);
        self.scan[llc as usize] = (cpus * left_ppm / 1_000_000) as u32;
    }

    fn remembered(&mut self, task: TaskId) -> &mut TaskHistory {
        if task.index() >= self.tasks.len() {
            self.tasks.resize(task.index() + 1, TaskHistory::default());
        }
        &mut self.tasks[task.index()]
    }

    /// The CPU for a task that wakes.
    pub(crate) fn select_wake(
        &mut self,
        k: &Kernel,
        loads: &Fair,
        task: TaskId,
        waker: Waker,
    ) -> CpuId {
        let prev = k.task(task).cpu;
        let mut target = prev;
        if let Waker::Task { task: waker, cpu } = waker {
            self.record_wakee(k.now, waker, task);
            if cpu != prev && k.allowed(task, cpu) && !self.wake_wide(k, waker, task) {
                target = wake_affine(k, loads, task, cpu, prev);
            }
        }
        let chosen = self.select_idle_sibling(k, task, prev, target);
        if k.allowed(task, chosen) {
            chosen
        } else {
            fallback(k, task, prev)
        }
    }

    /// Counts how often a task's wakee is another than the last time; halved once a second.
    fn record_wakee(&mut self, now: Ns, waker: TaskId, wakee: TaskId) {
        let waker = self.remembered(waker);
        let again = waker.last_wakee.replace(wakee) == Some(wakee);
        if now > waker.flips_since + FLIPS_DECAY_NS {
            (waker.flips, waker.flips_since) = (waker.flips / 2, now);
        }
        waker.flips += u32::from(!again);
    }

    /// Whether the two wake more tasks in turn than a cache has CPUs: then the wakee does not
    /// follow.
    fn wake_wide(&mut self, k: &Kernel, waker: TaskId, wakee: TaskId) -> bool {
        let mut flips = [self.remembered(waker).flips, self.remembered(wakee).flips];
        flips.sort_unstable();
        let cpus = k.cfg.topology.cpus_per_llc();
        flips[0] >= cpus && flips[1] / cpus >= flips[0]
    }

    /// A CPU for the task that shares the target's cache: one known to be good, else what a search
    /// finds.
    fn select_idle_sibling(
        &mut self,
        k: &Kernel,
        task: TaskId,
        prev: CpuId,
        target: CpuId,
    ) -> CpuId {
        let topology = &k.cfg.topology;
        let takes = |&cpu: &CpuId| takes_now(k, cpu) && k.allowed(task, cpu);
        let near = |&cpu: &CpuId| topology.share_cache(cpu, target);
        if takes(&target) {
            return target;
        }
        if near(&prev) && takes(&prev) {
            return prev;
        }
        let recent = self.remembered(task).recent.replace(prev);
        if let Some(recent) = recent.filter(near).filter(takes) {
            return recent;
        }
        let llc = topology.llc_of(target) as usize;
        if self.idle_core[llc] {
            let (core, any) = find_idle_core(k, task, target);
            self.idle_core[llc] = core.is_some();
            return core.or(any).unwrap_or(target);
        }
        let mut siblings = topology
            .siblings(prev)
            .map(CpuId)
            .filter(|_| near(&prev))
            .filter(|&cpu| cpu != prev);
        siblings
            .find(takes)
            .or_else(|| find_idle_cpu(k, task, target, self.scan[llc]))
            .unwrap_or(target)
    }
}

/// Nothing runs and nothing waits there.
#[inline]
pub(crate) fn is_idle(k: &Kernel, cpu: CpuId) -> bool {
    let c = &k.cpus[cpu.index()];
    c.curr.is_none() && c.nr_runnable == 0
}

/// Only tasks that yield to everybody run and wait there.
#[inline]
pub(crate) fn only_idle_policy(k: &Kernel, cpu: CpuId) -> bool {
    let c = &k.cpus[cpu.index()];
    c.nr_runnable > 0 && c.nr_runnable == c.nr_idle
}

/// Whether a woken task would run there at once: what the kernel takes for idle.
#[inline]
fn takes_now(k: &Kernel, cpu: CpuId) -> bool {
    is_idle(k, cpu) || only_idle_policy(k, cpu)
}

fn core_is_idle(k: &Kernel, cpu: CpuId) -> bool {
    k.cfg
        .topology
        .siblings(cpu)
        .all(|sibling| is_idle(k, CpuId(sibling)))
}

/// The CPUs of the target's cache that may take a task now, from the one after the target on, round
/// to it.
fn open_from(k: &Kernel, target: CpuId) -> impl Iterator<Item = CpuId> + '_ {
    let range = k.cfg.topology.llc_cpus(k.cfg.topology.llc_of(target));
    let (mut from, mut end, mut round) = (target.0 + 1, range.end, false);
    std::iter::from_fn(move || {
        loop {
            if let Some(cpu) = k.idle.next_in_either(&k.idle_policy, CpuId(from), end) {
                from = cpu.0 + 1;
                // A CPU that has been given a task and has not turned to it yet is idle no more.
                if takes_now(k, cpu) {
                    return Some(cpu);
                }
            } else if round {
                return None;
            } else {
                (from, end, round) = (range.start, target.0 + 1, true);
            }
        }
    })
}

/// A CPU of a core with all threads idle, and else the first CPU that would take the task.
fn find_idle_core(k: &Kernel, task: TaskId, target: CpuId) -> (Option<CpuId>, Option<CpuId>) {
    let mut any = None;
    for cpu in open_from(k, target).filter(|&cpu| k.allowed(task, cpu)) {
        if core_is_idle(k, cpu) {
            return (Some(cpu), any);
        }
        any = any.or(Some(cpu));
    }
    (None, any)
}

/// The first CPU that would take the task, among as many as the search may look at.
fn find_idle_cpu(k: &Kernel, task: TaskId, target: CpuId, scan: u32) -> Option<CpuId> {
    let cpu = open_from(k, target).find(|&cpu| k.allowed(task, cpu))?;
    let range = k.cfg.topology.llc_cpus(k.cfg.topology.llc_of(target));
    let size = range.len() as u32;
    // Places after the target, the target itself last.
    let place = (cpu.0 + size - target.0 - 1) % size;
    let looked = if k.task(task).anywhere {
        place
    } else {
        let at = |place: u32| CpuId(range.start + (target.0 - range.start + 1 + place) % size);
        (0..place)
            .filter(|&place| k.allowed(task, at(place)))
            .count() as u32
    };
    (looked < scan).then_some(cpu)
}

/// Between the waker's CPU and the one before: the waker's if it is about to be free, or if the
/// task leaves the two better balanced there. The one before counts for half the imbalance more,
/// since its cache is warm.
fn wake_affine(k: &Kernel, loads: &Fair, task: TaskId, this: CpuId, prev: CpuId) -> CpuId {
    let waker = &k.cpus[this.index()];
    if waker.nr_runnable == 1 {
        return this;
    }
    if is_idle(k, prev) {
        return prev;
    }
    // What stays on the waker's CPU: a waker that is about to sleep takes its load along.
    let leaves = waker.curr.map_or(0, |current| loads.task_load(k, current));
    let Some(stays) = loads.cpu_load(this).checked_sub(leaves) else {
        return this;
    };
    // Loads are below 2^40, so percents of them fit.
    let moved = loads.task_load(k, task);
    let here = (stays + moved) * 100;
    let there = loads.cpu_load(prev).saturating_sub(moved) * (100 + (IMBALANCE_PERCENT - 100) / 2);
    // On a tie a waker that is about to sleep has the task.
    if here <= there { this } else { prev }
}

/// A CPU for a task that may not stay on the one it would have: the first that takes it now, else
/// the first that it may use from there on.
pub(crate) fn fallback(k: &Kernel, task: TaskId, near: CpuId) -> CpuId {
    if k.allowed(task, near) {
        return near;
    }
    let allowed = &k.cold[task.index()].allowed;
    let from_near = || {
        allowed
            .iter()
            .filter(|cpu| cpu.0 > near.0)
            .chain(allowed.iter().filter(|cpu| cpu.0 < near.0))
    };
    from_near()
        .find(|&cpu| takes_now(k, cpu))
        .or_else(|| from_near().next())
        .unwrap_or(near)
}
