//! Who runs: the pick, and how a task begins to run, stops and is put back.

use tidegate_law::cap::State;
use tidegate_law::hweight::slice_left_ns;
use tidegate_law::runqueue::{load, pulls, weight};
use tidegate_law::tuning::{PICK_BALANCE_NS, PICK_REWEIGH_MAX, PICK_REWEIGH_NS};

use super::resched_timer::Moment;
use super::runqueue::Entrant;
use super::smt_spread::Core;
use super::{Ext, Kind, Place, Run};
use crate::kernel::Kernel;
use crate::sched::balance::note_tasks;
use crate::{CpuId, Ns, TaskId};

impl Ext {
    /// A task begins to compete: behind its caps, in the run queue of `cpu`'s cache. True: it waits there.
    pub(super) fn enter(&mut self, k: &mut Kernel, task: TaskId, cpu: CpuId) -> bool {
        let (kind, yields) = self.members.kind_of(k, task);
        let t = &mut self.members.tasks[task.index()];
        (t.kind, t.yields) = (kind, yields);
        t.cache = self.topology.llc_of(cpu);
        if !t.slots.is_empty() {
            let slots = std::mem::take(&mut t.slots);
            let (state, slot) = self.members.caps.state(&slots, k.now);
            self.members.tasks[task.index()].slots = slots;
            match state {
                State::Run => {}
                // Side work is behind everybody anyway, and as background it would escape the headroom controller.
                State::Background if kind == Kind::Side => {}
                State::Background => {
                    self.task_mut(task).kind = Kind::Background;
                    self.call_back(k, task, slot);
                }
                State::Parked => {
                    self.task_mut(task).place = Place::Held(slot);
                    self.book(k, task, slot);
                    return false;
                }
            }
        }
        let t = &self.members.tasks[task.index()];
        self.members.tree.activate(t.group, t.kind, t.weight);
        self.activate(k, task);
        self.count(k, task, 1);
        if kind == Kind::Side {
            self.side_members += 1;
            self.begin_headroom(k);
        }
        true
    }

    /// A task in the background is to be looked at when its slot holds something again.
    pub(super) fn call_back(&mut self, k: &Kernel, task: TaskId, slot: u32) {
        self.task_mut(task).soft_slot = Some(slot);
        self.members.caps.call_back(slot, task, k.now);
    }

    /// A task that its slot parks books what it will use there.
    pub(super) fn book(&mut self, k: &Kernel, task: TaskId, slot: u32) {
        if let Some(booked) = self.task_mut(task).booked.take() {
            self.members.caps.unbook(booked);
        }
        let booked = self.members.caps.book(slot, task, k.now);
        self.task_mut(task).booked = Some(booked);
    }

    fn entrant(&self, k: &Kernel, task: TaskId) -> Entrant {
        let t = &self.members.tasks[task.index()];
        Entrant {
            hweight: self.members.tree.hweight(t.group, t.kind, t.weight),
            cpus: self.cpus_of(k, task),
            weight: t.weight,
            slice_ns: t.slice_ns,
            period_ns: self.cfg.period_ns,
            hint: t.hint,
            lag: t.lag,
            left_at: (t.left == (t.cache, t.kind)).then_some(t.standing.vruntime),
            left_ns: t.left_ns,
        }
    }

    fn activate(&mut self, k: &Kernel, task: TaskId) {
        let entrant = self.entrant(k, task);
        self.task_mut(task).standing = self.runqueue(task).activate(&entrant, k.now);
    }

    fn deactivate(&mut self, k: &Kernel, task: TaskId) {
        let mut standing = self.task(task).standing;
        let lag = self.runqueue(task).deactivate(&mut standing, k.now);
        let t = self.task_mut(task);
        (t.standing, t.lag, t.left) = (standing, lag, (t.cache, t.kind));
    }

    /// It no longer competes; its lag goes with it.
    pub(super) fn exit(&mut self, k: &mut Kernel, task: TaskId) {
        self.count(k, task, -1);
        self.deactivate(k, task);
        self.side_members -= u32::from(self.task(task).kind == Kind::Side);
        let t = self.task_mut(task);
        let (group, kind, weight) = (t.group, t.kind, t.weight);
        if let Some(slot) = t.soft_slot.take() {
            self.members.caps.unhold(slot, task);
        }
        self.members.tree.deactivate(group, kind, weight);
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
    pub(super) fn left_ns(&self, task: TaskId) -> u64 {
        let standing = &self.task(task).standing;
        slice_left_ns(standing.vruntime, standing.end, standing.hweight)
    }

    /// In the run queue, in order.
    pub(super) fn wait(&mut self, task: TaskId, front: bool) {
        let (deadline, narrow) = (self.task(task).standing.deadline, self.task(task).narrow);
        let key = self.runqueue(task).wait(task, deadline, narrow, front);
        self.task_mut(task).place = Place::Waiting(key);
        self.side_waiting += u32::from(self.task(task).kind == Kind::Side);
    }

    pub(super) fn unwait(&mut self, task: TaskId, key: (u64, u64)) {
        self.runqueue(task).unwait(key);
        self.side_waiting -= u32::from(self.task(task).kind == Kind::Side);
    }

    /// The next task for a CPU, and until when it may run; none: idle.
    pub(super) fn choose(&mut self, k: &mut Kernel, cpu: CpuId) -> Option<TaskId> {
        self.claimed.remove(cpu);
        loop {
            let task = self.candidate(k, cpu)?;
            if self.admit(k, task, cpu) {
                self.start(k, task, cpu);
                return Some(task);
            }
        }
    }

    fn candidate(&mut self, k: &mut Kernel, cpu: CpuId) -> Option<TaskId> {
        if self.search(k).side_first(cpu)
            && let Some(task) = self.take(k, cpu, Kind::Side)
        {
            return Some(task);
        }
        while let Some(task) = self.cpus[cpu.index()].sent.pop() {
            if k.allowed(task, cpu) {
                self.bring(k, task, self.topology.llc_of(cpu));
                return Some(task);
            }
            // Its affinity has changed on the way.
            self.wait(task, false);
            if let Some(free) = self.search(k).find(task, k.task(task).cpu) {
                self.call(k, free);
            }
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

    /// The first of a kind that may run here, out of its own cache's run queue or the next that has one.
    fn take(&mut self, k: &Kernel, cpu: CpuId, kind: Kind) -> Option<TaskId> {
        if let Some(task) = self.balance(k, cpu, kind) {
            return Some(task);
        }
        let home = self.topology.llc_of(cpu);
        if kind == Kind::Main && k.now >= self.cpus[cpu.index()].reweigh_ns {
            self.cpus[cpu.index()].reweigh_ns = k.now + PICK_REWEIGH_NS;
            let _ = (0..PICK_REWEIGH_MAX).find(|_| !self.reweigh_first(k, cpu));
        }
        for cache in self.topology.llcs_from(home) {
            let runqueue = &self.caches[cache as usize].runqueues[kind as usize];
            if runqueue.waiting() == 0 {
                continue;
            }
            if let Some(first) = runqueue.first(|task| k.allowed(task, cpu)) {
                let (key, task) = match cache == home {
                    true => self.search(k).near(runqueue, first, cpu),
                    false => first,
                };
                self.unwait(task, key);
                self.bring(k, task, home);
                return Some(task);
            }
        }
        None
    }

    /// Moves a member to another cache's run queue; what it is behind by goes along.
    fn bring(&mut self, k: &Kernel, task: TaskId, home: u32) {
        if self.task(task).cache == home {
            return;
        }
        let left_ns = self.left_ns(task);
        self.deactivate(k, task);
        let t = self.task_mut(task);
        (t.cache, t.left_ns) = (home, left_ns);
        self.activate(k, task);
    }

    /// May it start? A task whose quota or bucket is used up goes to wait there instead.
    fn admit(&mut self, k: &mut Kernel, task: TaskId, cpu: CpuId) -> bool {
        let group = self.task(task).group;
        if let Err(out) = self.limits.admit(group, cpu, k.now) {
            self.park(k, task, out);
            return false;
        }
        if self.task(task).slots.is_empty() {
            return true;
        }
        let (state, _) = self.members.cap_state(task, k.now);
        let last = self.task(task).kind != Kind::Main;
        if state == State::Run || (state == State::Background && last) {
            return true;
        }
        self.task_mut(task).left_ns = self.left_ns(task);
        self.exit(k, task);
        if self.enter(k, task, cpu) {
            self.wait(task, false);
        }
        self.set_timers(k);
        false
    }

    fn start(&mut self, k: &mut Kernel, task: TaskId, cpu: CpuId) {
        let since_ns = match self.cpus[cpu.index()].before.take() {
            // It goes on, and equals may displace it.
            Some((before, since_ns)) if before == task => since_ns,
            _ => k.now,
        };
        let (group, kind) = {
            let t = self.task_mut(task);
            t.place = Place::Running(cpu);
            (t.group, t.kind)
        };
        let own = &mut self.cpus[cpu.index()];
        let before = own.last_group.replace(group);
        if let Some(before) = before {
            self.limits.leave(before, Some(group), cpu, k.now);
        }
        let mut standing = self.task(task).standing;
        self.runqueue(task).set_running(&mut standing, k.now);
        self.task_mut(task).standing = standing;
        if let Some(booked) = self.task_mut(task).booked.take() {
            self.members.caps.unbook(booked);
        }
        let deadline = self.task(task).standing.deadline;
        self.cpus[cpu.index()].run = Some(Run {
            task,
            kind,
            since_ns,
            slice_ns: self.task(task).slice_ns,
            until_ns: k.now,
            deadline,
        });
        self.side_running += u32::from(kind == Kind::Side);
        if since_ns == k.now {
            self.cpus[cpu.index()].resched_timer.begin();
            if kind == Kind::Main && self.runqueue(task).mean().is_light(standing.hweight) {
                self.resched_by(k, task, cpu, Moment::End);
            }
        }
        self.extend(k, cpu);
        self.set_timers(k);
    }

    /// Until when what runs may run: a silo, a bucket. (A slice ends at the first tick after, as does a turn at main's cost.)
    fn extend(&mut self, k: &mut Kernel, cpu: CpuId) {
        let Some(run) = &self.cpus[cpu.index()].run else {
            return;
        };
        let t = &mut self.members.tasks[run.task.index()];
        let for_ns = self
            .limits
            .left_ns(t.group, cpu)
            .min(self.members.caps.lend(t, k.now))
            .max(1);
        let until_ns = k.now.saturating_add(for_ns);
        if let Some(run) = &mut self.cpus[cpu.index()].run {
            run.until_ns = until_ns;
        }
        if until_ns < Ns::MAX {
            self.arm(k, cpu, until_ns);
        }
    }

    /// The CPU's task leaves it, still a member of its run queue.
    pub(super) fn stop(&mut self, cpu: CpuId) -> Option<TaskId> {
        let run = self.cpus[cpu.index()].run.take()?;
        self.side_running -= u32::from(run.kind == Kind::Side);
        self.members
            .caps
            .repay(&mut self.members.tasks[run.task.index()]);
        Some(run.task)
    }

    /// A task that still wants to run is queued again; `spreads`: if it may, on a core of its own.
    pub(super) fn put_back(&mut self, k: &mut Kernel, task: TaskId, cpu: CpuId, spreads: bool) {
        let kind = self.task(task).kind;
        self.task_mut(task).left_ns = self.left_ns(task);
        let (state, slot) = self.members.cap_state(task, k.now);
        if self.kind_in(k, task, state) == Some(kind) {
            self.reorder(k, task);
            if kind == Kind::Background && self.task(task).soft_slot.is_none() {
                self.call_back(k, task, slot);
            }
        } else {
            self.exit(k, task);
            if !self.enter(k, task, cpu) {
                self.set_timers(k);
                return;
            }
        }
        if let Err(out) = self.limits.closed(self.task(task).group, cpu, k.now) {
            self.park(k, task, out);
            return;
        }
        self.wait(task, false);
        if spreads
            && let Some(core) = self.search(k).core_for(task, cpu)
            && let Place::Waiting(key) = self.task(task).place
        {
            if let Core::Any(any) = core {
                self.cpus[cpu.index()].any_from = any.0 + 1;
            }
            let (Core::Near(core) | Core::Any(core)) = core;
            self.unwait(task, key);
            self.send(k, task, core);
        } else if self.task(task).kind == Kind::Main
            && let Some(free) = self.search(k).find(task, cpu).filter(|free| *free != cpu)
        {
            self.call(k, free);
        }
        self.set_timers(k);
    }

    /// What that state of its caps makes of it; none: parked.
    fn kind_in(&mut self, k: &Kernel, task: TaskId, state: State) -> Option<Kind> {
        let (kind, yields) = self.members.kind_of(k, task);
        self.task_mut(task).yields = yields;
        match state {
            State::Parked => None,
            State::Background if kind == Kind::Main => Some(Kind::Background),
            _ => Some(kind),
        }
    }

    pub(super) fn reorder(&mut self, k: &Kernel, task: TaskId) {
        let entrant = self.entrant(k, task);
        let mut standing = self.task(task).standing;
        let runqueue = self.runqueue(task);
        runqueue.stop(&mut standing);
        runqueue.requeue(&mut standing, &entrant, k.now);
        self.task_mut(task).standing = standing;
    }

    /// Charges what the CPU's task ran; true: its slice is over.
    pub(super) fn account(&mut self, k: &mut Kernel, cpu: CpuId) -> bool {
        let Some((task, ran_ns)) = k.charge(cpu) else {
            return false;
        };
        let Some(kind) = self.cpus[cpu.index()]
            .run
            .as_ref()
            .filter(|run| run.task == task)
            .map(|run| run.kind)
        else {
            return false;
        };
        let t = &mut self.members.tasks[task.index()];
        let runqueue = &mut self.caches[t.cache as usize].runqueues[t.kind as usize];
        let over = runqueue.charge(&mut t.standing, ran_ns, k.now);
        self.members
            .caps
            .charge(t, ran_ns, k.now, kind != Kind::Main);
        self.side_ns += if kind == Kind::Side { ran_ns } else { 0 };
        self.limits.charge(t.group, cpu, ran_ns);
        over
    }

    /// CPUs of a cache that serve a kind of work: all of them main, and what it leaves the others.
    fn serving(&self, cache: u32, kind: Kind) -> u64 {
        match kind {
            Kind::Main => u64::from(self.topology.cpus_per_llc()),
            _ => self.caches[cache as usize].runqueues[kind as usize]
                .mean()
                .running(),
        }
    }

    /// Now and then a CPU pulls a waiting task from the cache that has most to do for each CPU, if that evens them out.
    fn balance(&mut self, k: &Kernel, cpu: CpuId, kind: Kind) -> Option<TaskId> {
        let home = self.topology.llc_of(cpu);
        let own = &mut self.caches[home as usize];
        if self.topology.llcs() == 1 || k.now < own.balance_ns[kind as usize] {
            return None;
        }
        own.balance_ns[kind as usize] = k.now + PICK_BALANCE_NS;
        let mean = |cache: u32| self.caches[cache as usize].runqueues[kind as usize].mean();
        let load = |cache: &u32| load(mean(*cache).weights(), self.serving(*cache, kind));
        // Of equals the nearest.
        let nearest = self.topology.llcs_from(home).skip(1).collect::<Vec<_>>();
        let busiest = nearest.into_iter().rev().max_by_key(load)?;
        let (own, other) = (mean(home), mean(busiest));
        // The CPU that asks runs no task just now.
        let joins = u64::from(kind != Kind::Main);
        let runqueue = &self.caches[busiest as usize].runqueues[kind as usize];
        let (key, task) = runqueue.first_wide(|task| k.allowed(task, cpu))?;
        let pulls = pulls(
            (own.weights(), self.serving(home, kind) + joins),
            (other.weights(), self.serving(busiest, kind)),
            weight(self.members.tasks[task.index()].standing.hweight),
        );
        if !pulls {
            return None;
        }
        self.unwait(task, key);
        self.bring(k, task, home);
        Some(task)
    }
}
