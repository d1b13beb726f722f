//! Which task gives way to which: at a wakeup, and at a tick. crates/ext/bpf/queue/place.h is the same.

use tidegate_law::latency::{Rank, before};

use super::weight::virtual_ns;
use super::{Ext, ExtTask, Kind, Run};
use crate::kernel::Kernel;
use crate::{CpuId, TaskId};

/// Running tasks that a waking one is compared with.
const VICTIMS: usize = 16;

/// Whether a waiting task displaces a running one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Displaces {
    Not,
    /// It has won, and waits at the front for him to have his quarter.
    Soon,
    Now,
}

impl Ext {
    /// A tick: a slice that is over ends; and a task that was left alone because it had only begun is looked at again.
    pub(super) fn tick_look(&mut self, k: &mut Kernel, cpu: CpuId) {
        let over = self.account(k, cpu);
        let Some(run) = &self.cpus[cpu.index()].run else {
            return;
        };
        let cache = &self.caches[self.topology.llc_of(cpu) as usize];
        let line = &cache.lines[Kind::Main as usize];
        let waits = line.first(|task| k.allowed(task, cpu));
        let displaced = waits.is_some_and(|((deadline, _), _)| {
            let quarter_ns = run.since_ns + self.task(run.task).slice_ns / 4;
            run.kind != Kind::Main || (before(deadline, run.deadline) && k.now >= quarter_ns)
        });
        if over || (displaced && !self.is_forced(k, cpu)) {
            k.resched(cpu);
        }
    }

    /// The task there gives way to any of main's tasks (that is not of the idle class itself).
    pub(super) fn is_soft(&self, task: TaskId, run: &Run) -> bool {
        run.kind != Kind::Main || (self.task(run.task).yields && !self.task(task).yields)
    }

    /// A task of main's that wakes, against what runs on a CPU. A slice that is over ends at the next tick only; meanwhile whoever
    /// has it stands where the next one would put him. Equals leave each other alone for a quarter of a slice.
    fn displaces(&self, k: &Kernel, task: TaskId, cpu: CpuId, run: &Run) -> Displaces {
        if self.is_soft(task, run) {
            return Displaces::Now;
        }
        let (waits, runs) = (self.task(task), self.task(run.task));
        let line = &self.caches[waits.cache as usize].lines[Kind::Main as usize];
        let rank = |t: &ExtTask, deadline: u64, vruntime: u64| {
            let slice_v = virtual_ns(t.slice_ns, t.standing.flat);
            Rank::new(deadline, t.hint, line.is_eligible(vruntime, slice_v))
        };
        let ran_ns = k.now - k.cpus[cpu.index()].charged_to;
        let now_v = runs.standing.vruntime + virtual_ns(ran_ns, runs.standing.flat);
        let running = rank(runs, run.deadline, now_v);
        let waiting = rank(waits, waits.standing.deadline, waits.standing.vruntime);
        let slice_v = virtual_ns(waits.slice_ns, waits.standing.flat);
        let eligible = line.is_eligible(waits.standing.vruntime, slice_v);
        if !running.preempted_by(&waiting) && (!eligible || waits.hint > runs.hint) {
            return Displaces::Not;
        }
        if waits.hint < runs.hint || k.now >= run.since_ns + runs.slice_ns / 4 {
            return Displaces::Now;
        }
        Displaces::Soon
    }

    /// The CPU of its cache whose task has the latest deadline, and whether it displaces that.
    pub(super) fn victim(
        &self,
        k: &Kernel,
        task: TaskId,
        from: CpuId,
    ) -> (Option<CpuId>, Displaces) {
        if self.task(task).kind != Kind::Main {
            return (None, Displaces::Not);
        }
        let own = self.task(task).standing.deadline;
        let range = self.topology.llc_cpus(self.topology.llc_of(from));
        let ring = (from.0..range.end).chain(range.start..from.0);
        let mut latest: Option<(u64, CpuId, &Run)> = None;
        for cpu in ring.take(VICTIMS).map(CpuId) {
            let Some(run) = &self.cpus[cpu.index()].run else {
                continue;
            };
            if self.claimed.contains(cpu) || self.is_forced(k, cpu) || !k.allowed(task, cpu) {
                continue;
            }
            let deadline = if self.is_soft(task, run) {
                own + (1 << 62)
            } else {
                run.deadline
            };
            if latest.is_none_or(|(than, ..)| before(than, deadline)) {
                latest = Some((deadline, cpu, run));
            }
        }
        let best = latest.map(|(_, cpu, run)| (cpu, run));
        if best.is_none_or(|(_, run)| !self.is_soft(task, run))
            && let Some(cpu) = self.soft_elsewhere(k, task, from)
        {
            return (Some(cpu), Displaces::Now);
        }
        match best {
            None => (None, Displaces::Not),
            Some((cpu, run)) => (Some(cpu), self.displaces(k, task, cpu, run)),
        }
    }
}
