//! Which task gives way to which: at a wakeup, at a tick, and of those that wait. crates/sched-ext/bpf/queue/{place.h, pick.h} are the same.

use tidegate_law::hweight::virtual_ns;
use tidegate_law::latency::before;
use tidegate_law::runqueue::{Displaces, Task};
use tidegate_law::tuning::PLACE_SCAN_MAX;

use super::place::Search;
use super::runqueue::{Key, RunQueue};
use super::{Kind, Run};
use crate::{CpuId, TaskId};

impl Search<'_> {
    /// Whether a waiting task of main's displaces what runs on a CPU, at a tick: one that was left alone because it had only
    /// begun is looked at again.
    pub(super) fn is_displaced(&self, cpu: CpuId) -> bool {
        let Some(run) = &self.ext.cpus[cpu.index()].run else {
            return false;
        };
        let cache = &self.ext.caches[self.ext.topology.llc_of(cpu) as usize];
        let runqueue = &cache.runqueues[Kind::Main as usize];
        let waits = runqueue.first(|task| self.k.allowed(task, cpu));
        let displaced = waits.is_some_and(|((deadline, _), _)| {
            run.kind != Kind::Main
                || (before(deadline, run.deadline) && self.k.now >= run.undisturbed_until_ns())
        });
        displaced && !self.is_forced(cpu)
    }

    /// The task there gives way to any of main's tasks (that is not of the idle class itself).
    fn is_soft(&self, task: TaskId, run: &Run) -> bool {
        run.kind != Kind::Main || (self.ext.task(run.task).yields && !self.ext.task(task).yields)
    }

    /// A task of main's that waits, against what runs on a CPU. What that one weighs is looked up again: the waking task may have
    /// made it a fraction of what it was.
    fn displaces(&self, task: TaskId, cpu: CpuId, run: &Run) -> Displaces {
        if self.is_soft(task, run) {
            return Displaces::Now;
        }
        let (waits, runs) = (self.ext.task(task), self.ext.task(run.task));
        let mean = self.ext.caches[waits.cache as usize].runqueues[Kind::Main as usize].mean();
        let hweight = self
            .ext
            .members
            .tree
            .hweight(runs.group, runs.kind, runs.weight);
        let cpus = self.ext.cpus_of(self.k, run.task);
        let hweight = mean.feasible(hweight, runs.standing.hweight, cpus);
        let ran_ns = self.k.now - self.k.cpus[cpu.index()].charged_to;
        let running = Task {
            vruntime: runs.standing.vruntime + virtual_ns(ran_ns, hweight),
            slice_v: virtual_ns(runs.slice_ns, hweight),
            hint: runs.hint,
            ..Task::default()
        };
        let waiting = Task {
            vruntime: waits.standing.vruntime,
            slice_v: virtual_ns(waits.slice_ns, waits.standing.hweight),
            hint: waits.hint,
            sync: waits.sync.into(),
            ..Task::default()
        };
        waiting.displaces(&running, mean.v(), self.k.now - run.since_ns, run.slice_ns)
    }

    /// How late a CPU's task is, as a deadline: a task that already gives way to another is the earliest, one that yields the latest.
    fn lateness(&self, task: TaskId, cpu: CpuId, run: &Run) -> u64 {
        let own = self.ext.task(task).standing.deadline;
        if self.ext.claimed.contains(cpu) {
            own.wrapping_sub(1 << 61)
        } else if self.is_soft(task, run) {
            own.wrapping_add(1 << 61)
        } else {
            run.deadline
        }
    }

    /// The CPU of its cache whose task has the latest deadline, and whether the waiting task displaces that one. Where the running task
    /// already gives way to a third, the waiting task goes after the third (`Displaces::Soon`).
    pub(super) fn victim(&self, task: TaskId, from: CpuId) -> (Option<CpuId>, Displaces) {
        if self.ext.task(task).kind != Kind::Main {
            return (None, Displaces::Not);
        }
        let range = self.ext.topology.llc_cpus(self.ext.topology.llc_of(from));
        let ring = (from.0..range.end).chain(range.start..from.0);
        let mut latest: Option<(u64, CpuId, &Run)> = None;
        for cpu in ring.take(PLACE_SCAN_MAX as usize).map(CpuId) {
            let Some(run) = &self.ext.cpus[cpu.index()].run else {
                continue;
            };
            let is_left = self.ext.claimed.contains(cpu) && self.is_soft(task, run);
            if is_left || self.is_forced(cpu) || !self.k.allowed(task, cpu) {
                continue;
            }
            let deadline = self.lateness(task, cpu, run);
            if latest.is_none_or(|(than, ..)| before(than, deadline)) {
                latest = Some((deadline, cpu, run));
            }
        }
        let best = latest.map(|(_, cpu, run)| (cpu, run));
        if best.is_none_or(|(_, run)| !self.is_soft(task, run))
            && let Some(cpu) = self.soft_elsewhere(task, from)
        {
            return (Some(cpu), Displaces::Now);
        }
        match best {
            None => (None, Displaces::Not),
            Some((cpu, run)) => match self.displaces(task, cpu, run) {
                Displaces::Now if self.ext.claimed.contains(cpu) => (Some(cpu), Displaces::Soon),
                displaces => (Some(cpu), displaces),
            },
        }
    }

    /// The first, or a task that is under no limit and ran here last.
    pub(super) fn near(
        &self,
        runqueue: &RunQueue,
        first: (Key, TaskId),
        cpu: CpuId,
    ) -> (Key, TaskId) {
        let slice_v = |task| {
            let t = self.ext.task(task);
            virtual_ns(t.slice_ns, t.standing.hweight)
        };
        let is_free = |task| {
            let t = self.ext.task(task);
            t.slots.is_empty() && !self.ext.limits.limits(t.group)
        };
        runqueue.near(first, slice_v, |task| self.k.task(task).cpu == cpu, is_free)
    }
}
