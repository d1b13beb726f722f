//! Who runs: the pick, the look at what runs, and who displaces whom.

use tidegate_law::cap::State;
use tidegate_law::latency::{Rank, before};

use super::line::Comer;
use super::weight::{FLAT_BITS, FLAT_ONE, virtual_ns};
use super::{Ext, ExtTask, Kind, Place, Run};
use crate::kernel::Kernel;
use crate::sched::balance::note_tasks;
use crate::{CpuId, Ns, TaskId};

/// A hint of -20 brings a deadline forward by this (seed 001: sched_latency of a machine of 8 CPUs or more).
const PERIOD_NS: u64 = 24_000_000;
/// Between two looks at whether another cache has more work waiting.
const BALANCE_NS: Ns = 4_000_000;
/// Running tasks that a waking one is compared with, latest deadline first.
const VICTIMS: usize = 16;

impl Ext {
    /// A task begins to compete: behind its caps, in the line of `cpu`'s cache. True: it waits there.
    pub(super) fn enter(&mut self, k: &mut Kernel, task: TaskId, cpu: CpuId) -> bool {
        let (kind, yields) = self.kind_of(k, task);
        let t = &mut self.tasks[task.index()];
        (t.kind, t.yields) = (kind, yields);
        t.cache = self.topology.llc_of(cpu);
        if !t.slots.is_empty() {
            let slots = std::mem::take(&mut t.slots);
            let (state, slot) = self.caps.state(&slots, k.now);
            self.tasks[task.index()].slots = slots;
            match state {
                State::Run => {}
                // Side work is behind everybody anyway, and as background it would escape the tide.
                State::Background if kind == Kind::Side => {}
                State::Background => {
                    self.task_mut(task).kind = Kind::Background;
                    self.task_mut(task).soft_slot = Some(slot);
                    self.caps.hold(slot, task);
                }
                State::Parked => {
                    self.task_mut(task).place = Place::Held(slot);
                    self.caps.hold(slot, task);
                    return false;
                }
            }
        }
        let t = &self.tasks[task.index()];
        self.tree.activate(t.group, t.weight);
        self.join(task, None);
        self.count(k, task, 1);
        true
    }

    fn join(&mut self, task: TaskId, vruntime: Option<u64>) {
        let t = &self.tasks[task.index()];
        let comer = Comer {
            flat: self.tree.flat(t.group, t.weight),
            own: t.weight << FLAT_BITS,
            slice_ns: t.slice_ns,
            hint: t.hint,
            lag: t.lag,
            vruntime,
            left_ns: t.left_ns,
        };
        self.task_mut(task).standing = self.line(task).join(&comer, PERIOD_NS);
    }

    /// It no longer competes; its lag goes with it.
    pub(super) fn exit(&mut self, k: &mut Kernel, task: TaskId) {
        self.count(k, task, -1);
        let standing = self.task(task).standing;
        let lag = self.line(task).leave(&standing);
        let t = self.task_mut(task);
        t.lag = lag;
        let (group, weight) = (t.group, t.weight);
        if let Some(slot) = t.soft_slot.take() {
            self.caps.unhold(slot, task);
        }
        self.tree.deactivate(group, weight);
    }

    /// Main's tasks that want to run are counted on the CPU whose list they are on; others may be left waiting on purpose.
    pub(super) fn count(&self, k: &mut Kernel, task: TaskId, by: i32) {
        if self.task(task).kind == Kind::Main {
            let cpu = k.task(task).cpu;
            let count = &mut k.cpus[cpu.index()].nr_runnable;
            *count = count.wrapping_add_signed(by);
            note_tasks(k, cpu);
        }
    }

    /// What is left of its slice, in time.
    fn left_ns(&self, task: TaskId) -> u64 {
        let standing = &self.task(task).standing;
        if !before(standing.vruntime, standing.end) {
            return 0;
        }
        let left_v = standing.end.wrapping_sub(standing.vruntime);
        (u128::from(left_v) * u128::from(standing.flat) / u128::from(FLAT_ONE)) as u64
    }

    /// In the line, in order.
    pub(super) fn wait(&mut self, task: TaskId) {
        let (deadline, narrow) = (self.task(task).standing.deadline, self.task(task).narrow);
        let key = self.line(task).wait(task, deadline, narrow);
        self.task_mut(task).place = Place::Waiting(key);
        self.side_waiting += u32::from(self.task(task).kind == Kind::Side);
    }

    pub(super) fn unwait(&mut self, task: TaskId, key: (u64, u64)) {
        self.line(task).unwait(key);
        self.side_waiting -= u32::from(self.task(task).kind == Kind::Side);
    }

    /// The next task for a CPU, and until when it may run; none: idle.
    pub(super) fn choose(&mut self, k: &mut Kernel, cpu: CpuId) -> Option<TaskId> {
        self.claimed.remove(cpu);
        self.balance(k, cpu);
        loop {
            let task = self.candidate(k, cpu)?;
            if self.admit(k, task, cpu) {
                self.start(k, task, cpu);
                return Some(task);
            }
        }
    }

    fn candidate(&mut self, k: &mut Kernel, cpu: CpuId) -> Option<TaskId> {
        if self.side_first(k, cpu)
            && let Some(task) = self.take(k, cpu, Kind::Side)
        {
            return Some(task);
        }
        if let Some(task) = self.cpus[cpu.index()].sent.pop() {
            return Some(task);
        }
        if let Some(task) = self.take(k, cpu, Kind::Main) {
            return Some(task);
        }
        if self.side_may_start(k, cpu)
            && let Some(task) = self.take(k, cpu, Kind::Side)
        {
            return Some(task);
        }
        self.take(k, cpu, Kind::Background)
    }

    /// The first of a kind that may run here, out of its own cache's line or the next that has one.
    fn take(&mut self, k: &Kernel, cpu: CpuId, kind: Kind) -> Option<TaskId> {
        let home = self.topology.llc_of(cpu);
        for cache in self.caches_from(home) {
            let line = &self.caches[cache as usize].lines[kind as usize];
            if line.waiting() == 0 {
                continue;
            }
            if let Some((key, task)) = line.first(|task| k.allowed(task, cpu)) {
                self.unwait(task, key);
                self.bring(task, home);
                return Some(task);
            }
        }
        None
    }

    /// Moves a member to another cache's line; what it is behind by goes along.
    fn bring(&mut self, task: TaskId, home: u32) {
        if self.task(task).cache == home {
            return;
        }
        let left_ns = self.left_ns(task);
        let standing = self.task(task).standing;
        let lag = self.line(task).leave(&standing);
        let t = self.task_mut(task);
        (t.cache, t.lag, t.left_ns) = (home, lag, left_ns);
        self.join(task, None);
    }

    /// May it start? A task whose quota or bucket is used up goes to wait there instead.
    fn admit(&mut self, k: &mut Kernel, task: TaskId, cpu: CpuId) -> bool {
        let group = self.task(task).group;
        if let Err(out) = self.limits.admit(group, cpu, k.now) {
            self.exit(k, task);
            self.task_mut(task).place = Place::Parked(out);
            self.limits.park(out, task);
            self.set_timers(k);
            return false;
        }
        if self.task(task).slots.is_empty() {
            return true;
        }
        let (state, _) = self.caps.state(&self.tasks[task.index()].slots, k.now);
        let last = self.task(task).kind != Kind::Main;
        if state == State::Run || (state == State::Background && last) {
            return true;
        }
        self.task_mut(task).left_ns = self.left_ns(task);
        self.exit(k, task);
        if self.enter(k, task, cpu) {
            self.wait(task);
        }
        self.set_timers(k);
        false
    }

    fn start(&mut self, k: &mut Kernel, task: TaskId, cpu: CpuId) {
        let (group, kind, yields) = {
            let t = self.task_mut(task);
            t.place = Place::Running(cpu);
            (t.group, t.kind, t.yields)
        };
        let own = &mut self.cpus[cpu.index()];
        let before = own.last_group.replace(group);
        let forced = own.forced_ns > k.now;
        if let Some(before) = before {
            self.limits.leave(before, Some(group), cpu, k.now);
        }
        self.caps.start(&self.tasks[task.index()].slots);
        let deadline = self.task(task).standing.deadline;
        self.cpus[cpu.index()].run = Some(Run {
            task,
            kind,
            since_ns: k.now,
            until_ns: k.now,
            deadline,
        });
        self.soft
            .set(cpu, (kind != Kind::Main || yields) && !forced);
        if kind == Kind::Main {
            let cache = self.task(task).cache;
            self.caches[cache as usize].running.insert((deadline, cpu));
        }
        self.side_running += u32::from(kind == Kind::Side);
        self.extend(k, cpu);
        self.set_timers(k);
    }

    /// Until when what runs may run: its slice, a silo, a bucket, its turn at main's cost.
    fn extend(&mut self, k: &mut Kernel, cpu: CpuId) {
        let Some(run) = &self.cpus[cpu.index()].run else {
            return;
        };
        let (task, kind) = (run.task, run.kind);
        let t = self.task(task);
        let mut for_ns = self
            .left_ns(task)
            .min(self.limits.left_ns(t.group, cpu))
            .min(self.caps.left_ns(&t.slots));
        let forced_ns = self.cpus[cpu.index()].forced_ns;
        if kind == Kind::Side && forced_ns > k.now {
            for_ns = for_ns.min(forced_ns - k.now);
        }
        let until_ns = k.now + for_ns.max(1);
        if let Some(run) = &mut self.cpus[cpu.index()].run {
            run.until_ns = until_ns;
        }
        self.arm(k, cpu, until_ns);
    }

    /// The CPU's task leaves it, still a member of its line.
    pub(super) fn stop(&mut self, cpu: CpuId) -> Option<TaskId> {
        let run = self.cpus[cpu.index()].run.take()?;
        self.soft.remove(cpu);
        if run.kind == Kind::Main {
            let cache = self.task(run.task).cache;
            self.caches[cache as usize]
                .running
                .remove(&(run.deadline, cpu));
        }
        self.side_running -= u32::from(run.kind == Kind::Side);
        self.caps.stop(&self.tasks[run.task.index()].slots);
        Some(run.task)
    }

    /// A task that still wants to run is put back in line, with the rest of its slice. It never left the competition, so its
    /// vruntime stands; what it weighs may have changed.
    pub(super) fn put_back(&mut self, k: &mut Kernel, task: TaskId, cpu: CpuId) {
        let vruntime = self.task(task).standing.vruntime;
        let kind = self.task(task).kind;
        self.task_mut(task).left_ns = self.left_ns(task);
        self.exit(k, task);
        if self.enter(k, task, cpu) {
            if self.task(task).kind == kind {
                let standing = self.task(task).standing;
                self.line(task).leave(&standing);
                self.join(task, Some(vruntime));
            }
            self.wait(task);
            if self.task(task).kind == Kind::Main
                && let Some(free) = self.find(k, task, cpu).filter(|free| *free != cpu)
                && self.is_free(k, free)
            {
                k.resched(free);
            }
        }
        self.set_timers(k);
    }

    /// Charges what the CPU's task ran; false: it must stop.
    pub(super) fn account(&mut self, k: &mut Kernel, cpu: CpuId) -> bool {
        let Some((task, ran_ns)) = k.charge(cpu) else {
            return true;
        };
        let Some(kind) = self.cpus[cpu.index()]
            .run
            .as_ref()
            .filter(|run| run.task == task)
            .map(|run| run.kind)
        else {
            return true;
        };
        let t = &mut self.tasks[task.index()];
        let line = &mut self.caches[t.cache as usize].lines[t.kind as usize];
        let over = line.charge(&mut t.standing, ran_ns);
        self.caps
            .charge(&t.slots, ran_ns, k.now, kind != Kind::Main);
        self.side_ns += if kind == Kind::Side { ran_ns } else { 0 };
        let goes_on = self.limits.charge(t.group, cpu, ran_ns, k.now);
        goes_on && !over
    }

    /// A timer's or tick's look at what runs on a CPU.
    pub(super) fn look(&mut self, k: &mut Kernel, cpu: CpuId) {
        let goes_on = self.account(k, cpu);
        let Some(run) = &self.cpus[cpu.index()].run else {
            return;
        };
        let (task, kind) = (run.task, run.kind);
        let (state, _) = self.caps.state(&self.tasks[task.index()].slots, k.now);
        let capped = match kind {
            Kind::Background => state != State::Background,
            Kind::Side => state == State::Parked,
            Kind::Main => state != State::Run,
        };
        let surplus = kind == Kind::Side && self.side_is_surplus();
        if !goes_on || capped || surplus || self.is_displaced(k, cpu) {
            k.resched(cpu);
            return;
        }
        self.extend(k, cpu);
    }

    /// Is the first in line to run instead of what runs on `cpu`? A running task of no higher hint is left alone for a quarter
    /// of its slice, so that equals do not interrupt each other all the time.
    pub(super) fn is_displaced(&mut self, k: &mut Kernel, cpu: CpuId) -> bool {
        let Some(run) = &self.cpus[cpu.index()].run else {
            return false;
        };
        let (task, kind, since_ns) = (run.task, run.kind, run.since_ns);
        let cache = &self.caches[self.topology.llc_of(cpu) as usize];
        let line = &cache.lines[Kind::Main as usize];
        let Some((_, first)) = line.first(|task| k.allowed(task, cpu)) else {
            return false;
        };
        let waits = self.task(first);
        let runs = self.task(task);
        if kind != Kind::Main || (runs.yields && !waits.yields) {
            return self.soft.contains(cpu);
        }
        let rank = |t: &ExtTask, vruntime: u64| {
            let slice_v = virtual_ns(t.slice_ns, t.standing.flat);
            Rank::new(
                t.standing.deadline,
                t.hint,
                line.is_eligible(vruntime, slice_v),
            )
        };
        let ran_ns = k.now - k.cpus[cpu.index()].charged_to;
        let now_v = runs.standing.vruntime + virtual_ns(ran_ns, runs.standing.flat);
        let running = rank(runs, now_v);
        let waiting = rank(waits, waits.standing.vruntime);
        if !running.preempted_by(&waiting) {
            return false;
        }
        let protected_ns = since_ns + runs.slice_ns / 4;
        if waits.hint < runs.hint || k.now >= protected_ns {
            return true;
        }
        self.arm(k, cpu, protected_ns);
        false
    }

    /// A task of main's has begun to wait: whom does it displace?
    pub(super) fn contend(&mut self, k: &mut Kernel, task: TaskId) {
        if self.task(task).kind != Kind::Main {
            return;
        }
        let cache = &self.caches[self.task(task).cache as usize];
        let victim = cache
            .running
            .iter()
            .rev()
            .take(VICTIMS)
            .map(|(_, cpu)| *cpu)
            .find(|cpu| k.allowed(task, *cpu) && !k.needs_resched(*cpu));
        if let Some(cpu) = victim
            && self.is_displaced(k, cpu)
        {
            k.resched(cpu);
        }
    }

    /// Now and then a CPU pulls a waiting task from the cache that has most to do.
    fn balance(&mut self, k: &Kernel, cpu: CpuId) {
        let home = self.topology.llc_of(cpu);
        if self.caches.len() == 1 || k.now < self.caches[home as usize].balance_ns {
            return;
        }
        self.caches[home as usize].balance_ns = k.now + BALANCE_NS;
        let load = |cache: u32| self.caches[cache as usize].lines[Kind::Main as usize].weight();
        let Some(busiest) = self.caches_from(home).max_by_key(|cache| load(*cache)) else {
            return;
        };
        let line = &self.caches[busiest as usize].lines[Kind::Main as usize];
        let Some((key, task)) = line.last(|task| k.allowed(task, cpu)) else {
            return;
        };
        let moved = self.task(task).standing.flat;
        if load(home) + 2 * moved > load(busiest) {
            return;
        }
        self.unwait(task, key);
        self.bring(task, home);
        self.wait(task);
    }
}
