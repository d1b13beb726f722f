//! Where a task goes: idle cores first, so that a wakeup finds a whole one; then idle threads; then what yields.

use super::{Ext, Kind};
use crate::cpuset::CpuSet;
use crate::kernel::Kernel;
use crate::{CpuId, TaskId};

/// Looks for a CPU in the state as it is.
pub(super) struct Search<'a> {
    pub(super) ext: &'a Ext,
    pub(super) k: &'a Kernel,
}

impl Search<'_> {
    /// Whether a CPU does nothing and no task is on its way to it.
    pub(super) fn is_free(&self, cpu: CpuId) -> bool {
        self.k.idle.contains(cpu) && !self.ext.claimed.contains(cpu)
    }

    pub(super) fn is_core_free(&self, cpu: CpuId) -> bool {
        let mut siblings = self.ext.topology.siblings(cpu);
        siblings.all(|sibling| self.is_free(CpuId(sibling)))
    }

    /// The idle CPU for a task that wakes, starts or is let go.
    pub(super) fn find(&self, task: TaskId, prev: CpuId) -> Option<CpuId> {
        if self.ext.task(task).kind == Kind::Side {
            return None;
        }
        let may = |cpu: CpuId| self.k.allowed(task, cpu);
        if may(prev) && self.is_core_free(prev) {
            return Some(prev);
        }
        let home = self.ext.topology.llc_of(prev);
        let smt = self.ext.topology.threads_per_core() > 1;
        if smt {
            for cache in self.ext.topology.llcs_from(home) {
                let core = self.scan(&self.k.idle, cache, prev, |cpu| {
                    may(cpu) && self.is_core_free(cpu)
                });
                if core.is_some() {
                    return core;
                }
            }
            if may(prev) && self.is_free(prev) {
                return Some(prev);
            }
        }
        for cache in self.ext.topology.llcs_from(home) {
            let thread = self.scan(&self.k.idle, cache, prev, |cpu| {
                may(cpu) && !self.ext.claimed.contains(cpu)
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
        let range = self.ext.topology.llc_cpus(cache);
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
