//! Where a task goes: idle cores first, so that a wakeup finds a whole one; then idle threads; then what yields.

use super::{Ext, Kind};
use crate::cpuset::CpuSet;
use crate::kernel::Kernel;
use crate::{CpuId, TaskId};

impl Ext {
    /// Whether a CPU does nothing and no task is on its way to it.
    pub(super) fn is_free(&self, k: &Kernel, cpu: CpuId) -> bool {
        k.idle.contains(cpu) && !self.claimed.contains(cpu)
    }

    pub(super) fn is_core_free(&self, k: &Kernel, cpu: CpuId) -> bool {
        self.topology
            .siblings(cpu)
            .all(|sibling| self.is_free(k, CpuId(sibling)))
    }

    /// Caches in the order in which a task of `home` looks at them.
    pub(super) fn caches_from(&self, home: u32) -> impl Iterator<Item = u32> + use<> {
        let count = self.caches.len() as u32;
        (0..count).map(move |step| (home + step) % count)
    }

    /// The idle CPU for a task that wakes, starts or is let go.
    pub(super) fn find(&self, k: &Kernel, task: TaskId, prev: CpuId) -> Option<CpuId> {
        if self.task(task).kind == Kind::Side {
            return None;
        }
        let may = |cpu: CpuId| k.allowed(task, cpu);
        if may(prev) && self.is_core_free(k, prev) {
            return Some(prev);
        }
        let home = self.topology.llc_of(prev);
        let smt = self.topology.threads_per_core() > 1;
        if smt {
            for cache in self.caches_from(home) {
                let core = self.scan(&k.idle, cache, prev, |cpu| {
                    may(cpu) && self.is_core_free(k, cpu)
                });
                if core.is_some() {
                    return core;
                }
            }
            if may(prev) && self.is_free(k, prev) {
                return Some(prev);
            }
        }
        for cache in self.caches_from(home) {
            let thread = self.scan(&k.idle, cache, prev, |cpu| {
                may(cpu) && !self.claimed.contains(cpu)
            });
            if thread.is_some() {
                return thread;
            }
        }
        None
    }

    /// The first CPU of a cache, from `from` on, that is in the set and fits.
    pub(super) fn scan(
        &self,
        set: &CpuSet,
        cache: u32,
        from: CpuId,
        mut fits: impl FnMut(CpuId) -> bool,
    ) -> Option<CpuId> {
        let range = self.topology.llc_cpus(cache);
        let start = if range.contains(&from.0) {
            from.0
        } else {
            range.start
        };
        for (low, high) in [(start, range.end), (range.start, start)] {
            let mut at = CpuId(low);
            while let Some(cpu) = set.next_from(at).filter(|cpu| cpu.0 < high) {
                if fits(cpu) {
                    return Some(cpu);
                }
                at = CpuId(cpu.0 + 1);
            }
        }
        None
    }
}
