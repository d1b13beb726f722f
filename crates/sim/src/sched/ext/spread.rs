//! Main spreads: to a CPU of another cache that runs side work, and from a shared core to one that is idle as a whole.
//! crates/ext/bpf/queue/place.h and smt_spread.h are the same.

use super::{Ext, Kind, Place};
use crate::kernel::Kernel;
use crate::{CpuId, TaskId};

/// CPUs of the whole machine that are looked through for one that runs side work.
const ELSEWHERE: u32 = 256;
/// CPUs of its cache that are looked at for an idle core.
const LOOKS: usize = 16;

impl Ext {
    /// A CPU of another cache that runs side work or background: main does not wait where its cache is full of main while side
    /// work runs elsewhere.
    pub(super) fn soft_elsewhere(&self, k: &Kernel, task: TaskId, from: CpuId) -> Option<CpuId> {
        if self.caches.len() == 1 || self.side_running == 0 {
            return None;
        }
        let cpus = self.topology.cpus();
        let mut ring = (0..cpus.min(ELSEWHERE)).map(|step| CpuId((from.0 + step) % cpus));
        ring.find(|&cpu| {
            let run = self.cpus[cpu.index()].run.as_ref();
            run.is_some_and(|run| run.kind != Kind::Main)
                && !self.claimed.contains(cpu)
                && !self.is_forced(k, cpu)
                && k.allowed(task, cpu)
        })
    }

    /// Whether another of main's tasks has been on this CPU's core for a quarter of a slice.
    fn is_crowded(&self, k: &Kernel, cpu: CpuId) -> bool {
        let mut others = self.topology.siblings(cpu).map(CpuId);
        others.any(|other| {
            let run = self.cpus[other.index()].run.as_ref();
            other != cpu
                && run.is_some_and(|run| {
                    let quarter_ns = self.task(run.task).slice_ns / 4;
                    run.kind == Kind::Main && k.now >= run.since_ns + quarter_ns
                })
        })
    }

    /// Where a task goes whose slice is over, if no task waits and it shares its core with another of main's: to a core that is
    /// idle as a whole, in its own cache if there is one among the next CPUs there.
    pub(super) fn core_for(&mut self, k: &Kernel, task: TaskId, cpu: CpuId) -> Option<CpuId> {
        let t = self.task(task);
        if self.topology.threads_per_core() < 2
            || t.kind != Kind::Main
            || !matches!(t.place, Place::Waiting(_))
            || !self.is_crowded(k, cpu)
        {
            return None;
        }
        let line = &self.caches[t.cache as usize].lines[Kind::Main as usize];
        if line
            .first(|other| other != task && k.allowed(other, cpu))
            .is_some()
        {
            return None;
        }
        let idle = |at: u32| k.allowed(task, CpuId(at)) && self.is_core_free(k, CpuId(at));
        let cache = self.topology.llc_cpus(self.topology.llc_of(cpu));
        let mut next = (cpu.0 + 1..cache.end).chain(cache.start..cpu.0);
        if let Some(near) = next.by_ref().take(LOOKS).find(|at| idle(*at)) {
            return Some(CpuId(near));
        }
        // Each CPU goes on from where it last found one, as the kernel's own search for any.
        let from = CpuId(self.cpus[cpu.index()].any_from);
        let any = self.idle_core(k, task, from)?;
        self.cpus[cpu.index()].any_from = any.0 + 1;
        Some(any)
    }

    /// The first CPU from `from` on, round the machine, whose whole core is idle.
    fn idle_core(&self, k: &Kernel, task: TaskId, from: CpuId) -> Option<CpuId> {
        for (low, high) in [(from, u32::MAX), (CpuId(0), from.0)] {
            let mut at = low;
            while let Some(cpu) = k.idle.next_from(at).filter(|cpu| cpu.0 < high) {
                if k.allowed(task, cpu) && self.is_core_free(k, cpu) {
                    return Some(cpu);
                }
                at = CpuId(cpu.0 + 1);
            }
        }
        None
    }
}
