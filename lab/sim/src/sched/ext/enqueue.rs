//! What the machine asks of the class (see the contract in `sched`).

use tidegate_law::cap::State;
use tidegate_law::runqueue::{Displaces, reweighs};
use tidegate_law::tuning::RESCHED_TASKS_MAX;

use super::resched_timer::Moment;
use super::{ClassTimer, Ext, Kind, Place};
use crate::kernel::Kernel;
use crate::sched::BandwidthStat;
use crate::sched::fair::{Dequeue, Enqueue};
use crate::sched::place::Waker;
use crate::trace::Event;
use crate::{CpuId, GroupId, Ns, TaskId};

impl Ext {
    /// An idle CPU, else the one whose task wakes it and is about to sleep, if they share a cache; else its own. The kernel asks,
    /// and so says that the waker is about to sleep, only for a task that may run on several CPUs.
    pub(crate) fn select_wake(&mut self, k: &Kernel, task: TaskId, waker: Waker) -> CpuId {
        let cpu = self.select_cpu(k, task, k.task(task).cpu);
        let Waker::Task {
            cpu: here,
            sync: true,
            ..
        } = waker
        else {
            return cpu;
        };
        let pinned = k.cpus.len() == 1
            || (!k.task(task).anywhere && k.cold[task.index()].allowed.count() == 1);
        if pinned || self.task(task).kind == Kind::Side || self.search(k).is_free(cpu) {
            return cpu;
        }
        self.task_mut(task).sync = true;
        let near = self.topology.llc_of(here) == self.topology.llc_of(cpu);
        if near && k.allowed(task, here) {
            here
        } else {
            cpu
        }
    }

    pub(crate) fn select_cpu(&self, k: &Kernel, task: TaskId, from: CpuId) -> CpuId {
        let own = k.task(task).cpu;
        let prev = if k.allowed(task, own) { own } else { from };
        if let Some(cpu) = self.search(k).find(task, prev) {
            return cpu;
        }
        if k.allowed(task, prev) {
            return prev;
        }
        k.cold[task.index()].allowed.first().unwrap_or(prev)
    }

    pub(crate) fn enqueue(&mut self, k: &mut Kernel, cpu: CpuId, task: TaskId, why: Enqueue) {
        k.list_add(cpu, task);
        k.cpus[cpu.index()].nr_queued += 1;
        let narrow = !k.task(task).anywhere;
        let t = self.task_mut(task);
        t.narrow = narrow;
        if why != Enqueue::Move {
            t.left_ns = 0;
        }
        self.arrive(k, task, cpu);
        self.task_mut(task).sync = false;
        self.set_timers(k);
    }

    /// A task comes to `cpu`: it is sent there if it may start at once, else it waits in the run queue of that CPU's cache.
    fn arrive(&mut self, k: &mut Kernel, task: TaskId, cpu: CpuId) {
        if !self.enter(k, task, cpu) {
            return;
        }
        if let Err(out) = self.limits.closed(self.task(task).group, cpu, k.now) {
            self.park(k, task, out);
            return;
        }
        if self.task(task).kind == Kind::Side {
            self.wait(task, false);
            self.level_side(k);
            return;
        }
        if self.search(k).is_free(cpu) {
            self.send(k, task, cpu);
            return;
        }
        match self.search(k).victim(task, cpu) {
            (Some(victim), Displaces::Now) => self.send(k, task, victim),
            (Some(victim), Displaces::Soon) => {
                self.wait(task, true);
                self.resched_by(k, task, victim, Moment::Soon);
            }
            (Some(victim), Displaces::Later) => {
                self.wait(task, false);
                self.resched_by(k, task, victim, Moment::End);
            }
            _ => self.wait(task, false),
        }
    }

    /// CPUs of its cache, if it may run on as many; 0: its weight counts whole.
    pub(super) fn cpus_of(&self, k: &Kernel, task: TaskId) -> u64 {
        let t = self.task(task);
        let cpus = self.topology.llc_cpus(t.cache).len();
        let allowed = k.task(task).anywhere || k.cold[task.index()].allowed.count() >= cpus as u32;
        if t.kind == Kind::Main && allowed {
            cpus as u64
        } else {
            0
        }
    }

    /// Puts the first of main's tasks that may run here in order again, if what it weighs has changed by much. False: it stays the
    /// first. One that was put at the front stays there.
    pub(super) fn reweigh_first(&mut self, k: &Kernel, cpu: CpuId) -> bool {
        let runqueue =
            &self.caches[self.topology.llc_of(cpu) as usize].runqueues[Kind::Main as usize];
        let Some((key, task)) = runqueue.first(|task| k.allowed(task, cpu)) else {
            return false;
        };
        let (t, standing) = (self.task(task), self.task(task).standing);
        let hweight = self.members.tree.hweight(t.group, t.kind, t.weight);
        let cpus = self.cpus_of(k, task);
        let hweight = runqueue.mean().feasible(hweight, standing.hweight, cpus);
        if key.0 != standing.deadline || !reweighs(standing.hweight, hweight) {
            return false;
        }
        self.unwait(task, key);
        self.task_mut(task).left_ns = self.left_ns(task);
        self.reorder(k, task);
        self.wait(task, false);
        true
    }

    /// A CPU is to look who is first; no other task counts on it meanwhile.
    pub(super) fn call(&mut self, k: &mut Kernel, cpu: CpuId) {
        self.claimed.insert(cpu);
        k.resched(cpu);
    }

    /// To a CPU that is idle, or whose task gives way.
    pub(super) fn send(&mut self, k: &mut Kernel, task: TaskId, cpu: CpuId) {
        self.claimed.insert(cpu);
        self.cpus[cpu.index()].sent.push(task);
        self.task_mut(task).place = Place::Sent(cpu);
        k.resched(cpu);
    }

    /// Its group is out of quota: it waits there, out of run queue and tree.
    pub(super) fn park(&mut self, k: &mut Kernel, task: TaskId, out: GroupId) {
        self.exit(k, task);
        self.task_mut(task).place = Place::Parked(out);
        self.limits.park(out, task);
        self.set_timers(k);
    }

    pub(crate) fn dequeue(&mut self, k: &mut Kernel, cpu: CpuId, task: TaskId, why: Dequeue) {
        match self.task(task).place {
            Place::Away => {}
            Place::Waiting(key) => {
                self.unwait(task, key);
                self.exit(k, task);
            }
            Place::Sent(to) => {
                self.cpus[to.index()].sent.retain(|sent| *sent != task);
                self.claimed.remove(to);
                self.exit(k, task);
            }
            Place::Running(on) => {
                self.account(k, on);
                self.stop(on);
                self.exit(k, task);
            }
            Place::Parked(group) => self.limits.unpark(group, task),
            Place::Held(slot) => self.members.caps.unhold(slot, task),
        }
        self.task_mut(task).place = Place::Away;
        k.list_del(cpu, task);
        k.cpus[cpu.index()].nr_queued -= 1;
        if let Some(booked) = self.task_mut(task).booked.take() {
            self.members.caps.unbook(booked);
        }
        if why == Dequeue::Exit {
            let slots = std::mem::take(&mut self.task_mut(task).slots);
            self.members.caps.leave(&slots, k.now);
        }
    }

    pub(crate) fn check_preempt(&mut self, k: &mut Kernel, new: TaskId) {
        if let Place::Sent(to) = self.task(new).place {
            k.resched(to);
        }
    }

    pub(crate) fn pick(&mut self, k: &mut Kernel, cpu: CpuId) -> Option<TaskId> {
        self.account(k, cpu);
        let since_ns = self.cpus[cpu.index()].run.as_ref().map(|run| run.since_ns);
        let stopped = self.stop(cpu);
        self.cpus[cpu.index()].before = stopped.zip(since_ns);
        if let Some(task) = stopped {
            // Who is displaced by one that was sent here has no say in where he goes.
            let spreads = self.cpus[cpu.index()].sent.is_empty();
            self.put_back(k, task, cpu, spreads);
        }
        let next = self.choose(k, cpu);
        match next {
            Some(task) => self.relocate(k, task, cpu),
            None => self.leave_idle(k, cpu),
        }
        next
    }

    /// The CPU has nothing to run for this class: what it holds of anybody's quota goes back.
    fn leave_idle(&mut self, k: &mut Kernel, cpu: CpuId) {
        if let Some(group) = self.cpus[cpu.index()].last_group.take() {
            self.limits.leave(group, None, cpu, k.now);
            self.set_timers(k);
        }
    }

    /// A task taken from another CPU's list is this one's from here on.
    fn relocate(&mut self, k: &mut Kernel, task: TaskId, to: CpuId) {
        let from = k.task(task).cpu;
        if from == to {
            return;
        }
        k.list_del(from, task);
        k.list_add(to, task);
        k.cpus[from.index()].nr_queued -= 1;
        k.cpus[to.index()].nr_queued += 1;
        let competes = matches!(
            self.task(task).place,
            Place::Waiting(_) | Place::Sent(_) | Place::Running(_)
        );
        if competes {
            self.count(k, task, -1);
        }
        let cost_ns = k.cfg.costs.migrate_ns;
        let t = k.task_mut(task);
        t.cpu = to;
        t.overhead_ns += cost_ns;
        if competes {
            self.count(k, task, 1);
        }
        k.trace(Event::Migrate { task, from, to });
    }

    /// A real-time task took the CPU after all.
    pub(crate) fn switch(&mut self, k: &mut Kernel, cpu: CpuId, next: Option<TaskId>) {
        if next.is_some() {
            return;
        }
        if let Some(task) = self.stop(cpu) {
            self.put_back(k, task, cpu, false);
        }
        self.leave_idle(k, cpu);
        self.claimed.remove(cpu);
        for task in std::mem::take(&mut self.cpus[cpu.index()].sent) {
            self.wait(task, false);
            let free = self.search(k).find(task, cpu);
            if let Some(free) = free.filter(|free| self.search(k).is_free(*free)) {
                self.call(k, free);
            }
        }
    }

    pub(crate) fn update_curr(&mut self, k: &mut Kernel, cpu: CpuId) {
        self.account(k, cpu);
    }

    pub(crate) fn tick(&mut self, k: &mut Kernel, cpu: CpuId) {
        let over = self.account(k, cpu);
        if over || self.search(k).is_displaced(cpu) {
            k.resched(cpu);
        }
    }

    /// One of main's waits for that moment of the task there.
    pub(super) fn resched_by(&mut self, k: &mut Kernel, task: TaskId, cpu: CpuId, moment: Moment) {
        let members = self.runqueue(task).mean().members();
        let cpus = u64::from(self.topology.cpus()) / self.caches.len() as u64;
        let own = &mut self.cpus[cpu.index()];
        if let Some(run) = own
            .run
            .as_ref()
            .filter(|_| members <= u64::from(RESCHED_TASKS_MAX) * cpus)
        {
            own.resched_timer.want(k, cpu, run, moment);
        }
    }

    /// The timer for that: the choice looks at the run queue.
    fn resched_timer(&mut self, k: &mut Kernel, cpu: CpuId) {
        let own = &mut self.cpus[cpu.index()];
        let run = own.run.as_ref().filter(|_| !self.claimed.contains(cpu));
        if own.resched_timer.is_due(k, cpu, run) {
            k.resched(cpu);
        }
    }

    /// sched_yield: the CPU chooses again; the engine has no callback for it, so who yields keeps his place.
    pub(crate) fn yield_now(&mut self, k: &mut Kernel, cpu: CpuId) {
        self.account(k, cpu);
        k.resched(cpu);
    }

    pub(crate) fn timer(&mut self, k: &mut Kernel, number: u64) {
        match ClassTimer::unpack(number) {
            ClassTimer::Headroom => self.headroom_timer(k),
            ClassTimer::Cpu(cpu) => self.cpu_timer(k, cpu),
            ClassTimer::Resched(cpu) => self.resched_timer(k, cpu),
            ClassTimer::Limit(group) => {
                for task in self.limits.timer(group, k.now) {
                    self.again(k, task);
                }
            }
            ClassTimer::Cap(slot) => {
                for task in self.members.caps.timer(slot, k.now) {
                    self.called_back(k, task, slot);
                }
                self.members.caps.arm(slot, k.now);
            }
        }
        self.set_timers(k);
    }

    fn cpu_timer(&mut self, k: &mut Kernel, cpu: CpuId) {
        let own = &mut self.cpus[cpu.index()];
        if own.armed_ns != Some(k.now) {
            return;
        }
        own.armed_ns = None;
        let Some(run) = &own.run else {
            return;
        };
        if run.until_ns > k.now {
            let until_ns = run.until_ns;
            self.arm(k, cpu, until_ns);
            return;
        }
        k.resched(cpu);
    }

    /// What a quota or a hard cap held back is queued again, and a CPU is called: an idle one, or one whose task it displaces
    /// (which then takes the first that waits).
    fn again(&mut self, k: &mut Kernel, task: TaskId) {
        self.task_mut(task).place = Place::Away;
        let own = k.task(task).cpu;
        if !self.enter(k, task, own) {
            return;
        }
        self.wait(task, false);
        if self.task(task).kind == Kind::Side {
            self.level_side(k);
        } else if let Some(free) = self.search(k).find(task, own) {
            self.call(k, free);
        } else if let (Some(victim), Displaces::Now) = self.search(k).victim(task, own) {
            self.call(k, victim);
        }
    }

    /// A bucket should hold something again. What is found decides, not what was expected. One that runs in the background is
    /// looked at when its slice ends.
    fn called_back(&mut self, k: &mut Kernel, task: TaskId, slot: u32) {
        let (state, holder) = self.members.cap_state(task, k.now);
        match self.task(task).place {
            Place::Held(held) if held == slot && state == State::Parked => {
                self.task_mut(task).place = Place::Held(holder);
                self.book(k, task, holder);
            }
            Place::Held(held) if held == slot => self.again(k, task),
            Place::Waiting(_) if self.task(task).soft_slot != Some(slot) => {}
            Place::Waiting(_) if state != State::Run => self.call_back(k, task, holder),
            Place::Waiting(key) => {
                self.task_mut(task).soft_slot = None;
                self.unwait(task, key);
                self.exit(k, task);
                self.again(k, task);
            }
            _ => self.task_mut(task).soft_slot = None,
        }
    }

    pub(crate) fn set_bandwidth(&mut self, k: &mut Kernel, group: GroupId) {
        let bandwidth = k.groups[group.index()].bandwidth;
        for task in self.limits.set(group, &bandwidth, k.now) {
            self.again(k, task);
        }
        self.set_timers(k);
    }

    /// Whether a task waits for quota or a cap.
    pub(crate) fn is_held(&self, task: TaskId) -> bool {
        matches!(self.task(task).place, Place::Parked(_) | Place::Held(_))
    }

    /// Whether a task of main's waits for a CPU and nothing else.
    pub(crate) fn waits(&self, task: TaskId) -> bool {
        matches!(self.task(task).place, Place::Waiting(_)) && self.task(task).kind == Kind::Main
    }

    pub(crate) fn turnover_ns(&self, group: GroupId) -> Option<Ns> {
        self.limits.get(group).map(|pool| pool.turnover_ns())
    }

    pub(crate) fn bandwidth_stat(&self, group: GroupId) -> BandwidthStat {
        let stat = self
            .limits
            .get(group)
            .map(|pool| pool.stat())
            .unwrap_or_default();
        BandwidthStat {
            nr_periods: stat.nr_periods,
            nr_throttled: stat.nr_throttled,
            throttled_ns: stat.throttled_ns,
            nr_bursts: stat.nr_bursts,
            burst_ns: stat.burst_ns,
        }
    }
}
