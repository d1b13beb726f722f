//! Main spreads: to a CPU of another cache that runs side work, and from a shared core to one that is idle as a whole.
//! crates/sched-ext/bpf/queue/place.h and smt_spread.h are the same.

use tidegate_law::tuning::SMT_SPREAD_SCAN_MAX;

use super::place::Search;
use super::{Kind, Place};
use crate::{CpuId, TaskId};

/// A core that is idle as a whole.
pub(super) enum Core {
    /// Among the next CPUs of the cache.
    Near(CpuId),
    /// Found by the search of the whole machine, which goes on from there.
    Any(CpuId),
}

impl Search<'_> {
    /// A CPU that runs side work or background, in the nearest cache: main does not wait where the CPUs that it looked at are full of
    /// main while side work runs elsewhere.
    pub(super) fn soft_elsewhere(&self, task: TaskId, from: CpuId) -> Option<CpuId> {
        let topology = &self.ext.topology;
        let runs_soft = |cache: &u32| {
            let runqueues = &self.ext.caches[*cache as usize].runqueues;
            [Kind::Side, Kind::Background]
                .iter()
                .any(|kind| runqueues[*kind as usize].mean().running() > 0)
        };
        let caches = topology.llcs_from(topology.llc_of(from)).filter(runs_soft);
        let mut cpus = caches.flat_map(|cache| topology.llc_cpus(cache)).map(CpuId);
        cpus.find(|&cpu| {
            let run = self.ext.cpus[cpu.index()].run.as_ref();
            run.is_some_and(|run| run.kind != Kind::Main)
                && !self.ext.claimed.contains(cpu)
                && !self.is_forced(cpu)
                && self.k.allowed(task, cpu)
        })
    }

    /// Whether another of main's tasks has been on this CPU's core for a while.
    fn is_crowded(&self, cpu: CpuId) -> bool {
        let mut others = self.ext.topology.siblings(cpu).map(CpuId);
        others.any(|other| {
            let run = self.ext.cpus[other.index()].run.as_ref();
            other != cpu
                && run.is_some_and(|run| {
                    run.kind == Kind::Main && self.k.now >= run.undisturbed_until_ns()
                })
        })
    }

    /// Where a task goes whose slice is over, if no task waits and it shares its core with another of main's: to a core that is
    /// idle as a whole, in its own cache if there is one among the next CPUs there.
    pub(super) fn core_for(&self, task: TaskId, cpu: CpuId) -> Option<Core> {
        let t = self.ext.task(task);
        if self.ext.topology.threads_per_core() < 2
            || t.kind != Kind::Main
            || !matches!(t.place, Place::Waiting(_))
            || !self.is_crowded(cpu)
        {
            return None;
        }
        let runqueue = &self.ext.caches[t.cache as usize].runqueues[Kind::Main as usize];
        if runqueue
            .first(|other| other != task && self.k.allowed(other, cpu))
            .is_some()
        {
            return None;
        }
        let idle = |at: u32| self.k.allowed(task, CpuId(at)) && self.is_core_free(CpuId(at));
        let cache = self.ext.topology.llc_cpus(self.ext.topology.llc_of(cpu));
        let mut next = (cpu.0 + 1..cache.end).chain(cache.start..cpu.0);
        if let Some(near) = next
            .by_ref()
            .take(SMT_SPREAD_SCAN_MAX as usize)
            .find(|at| idle(*at))
        {
            return Some(Core::Near(CpuId(near)));
        }
        // Each CPU goes on from where it last found one, as the kernel's own search for any.
        let from = CpuId(self.ext.cpus[cpu.index()].any_from);
        self.idle_core(task, from).map(Core::Any)
    }

    /// The first CPU from `from` on, round the machine, whose whole core is idle.
    fn idle_core(&self, task: TaskId, from: CpuId) -> Option<CpuId> {
        for (low, high) in [(from, u32::MAX), (CpuId(0), from.0)] {
            let mut at = low;
            while let Some(cpu) = self.k.idle.next_from(at).filter(|cpu| cpu.0 < high) {
                if self.k.allowed(task, cpu) && self.is_core_free(cpu) {
                    return Some(cpu);
                }
                at = CpuId(cpu.0 + 1);
            }
        }
        None
    }
}
