//! The fair class: groups and tasks share each CPU by weight, at every level
//! of the tree of groups.
//!
//! As in the kernel, each group has a run queue on each CPU ([`Rq`]) and an
//! entity that stands for it in its parent's run queue; a task is an entity
//! too ([`Entity`]). What runs is found from the root down, what runs is charged from the
//! task up. Files, by idea:
//!
//! - `eevdf`: whose turn it is among equals of one queue (kernel 6.12 to 6.18);
//! - `queue`: entering and leaving queues, up the hierarchy;
//! - here: the walk down from the root to the task whose turn it is, and what changes at a switch;
//! - `order`: entities and run queues;
//! - `group`: a group's weight on each CPU (`calc_group_shares`), changes of weight;
//! - `pelt`: the load means that those weights come from;
//! - `bandwidth`: cpu.max, by `law/bandwidth.h` in the kernel's mode, and how a group that is out
//!   of quota stops.
//!
//! Left out, and where it would matter: autogroup, NUMA, energy-aware
//! placement, util_est and frequency, real-time tasks and the fair server.

mod bandwidth;
mod eevdf;
mod entity;
mod group;
mod order;
mod pelt;
mod queue;
mod verify;
mod weight;

use crate::Ns;
use crate::config::base_slice_ns;
use crate::ids::{CpuId, GroupId, TaskId};
use crate::kernel::{Kernel, NONE};
use crate::sched::balance::Balance;
use crate::sched::place::{Placement, Waker, idlest_cpu};
use crate::spec::Policy;
use entity::{Entity, Rq};
use order::Order;
use std::collections::VecDeque;
use tidegate_law::bandwidth::Pool;
pub(crate) use verify::verify;
use weight::{NICE_0, task_weight};

/// A group over all CPUs (the kernel's task_group).
pub(crate) struct Tg {
    /// Times 2^10.
    shares: u64,
    load_avg: u64,
    swept_at: Ns,
    pub(crate) pool: Pool,
    /// The groups right below.
    children: Vec<u32>,
    /// CPUs on which it is throttled, longest first.
    throttled: VecDeque<u32>,
    period_armed: bool,
    slack_armed: bool,
}

/// Why a task leaves a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dequeue {
    Sleep,
    Exit,
    Move,
}

/// The fair class of one machine.
pub(crate) struct Fair {
    pub(crate) order: Order,
    pub(crate) tgs: Vec<Tg>,
    slice_ns: u64,
    expire: bool,
    pub(crate) placement: Placement,
    pub(crate) balance: Balance,
}

impl Fair {
    pub(crate) fn new(k: &Kernel) -> Fair {
        Fair {
            order: Order {
                base_slice_ns: base_slice_ns(k.cpus.len() as u32),
                ents: Vec::new(),
                rqs: Vec::new(),
                ncpu: k.cpus.len() as u32,
                tick_ns: k.cfg.tick_ns,
            },
            tgs: Vec::new(),
            slice_ns: k.cfg.bandwidth_slice_us * 1000,
            expire: k.cfg.slices_expire,
            placement: Placement::new(k),
            balance: Balance::new(k),
        }
    }

    pub(crate) fn add_group(&mut self, k: &mut Kernel, group: GroupId) {
        let g = &k.groups[group.index()];
        let root = group == GroupId::ROOT;
        for cpu in 0..self.order.ncpu {
            let rq = self.order.rqs.len() as u32;
            let mut ent = NONE;
            if !root {
                ent = self.order.ents.len() as u32;
                let mut e = Entity::new(NONE, NICE_0);
                e.rq = self.order.rq_of(g.parent, CpuId(cpu));
                e.my_rq = rq;
                self.order.ents.push(e);
            }
            self.order.rqs.push(Rq::new(group.0, cpu, ent));
        }
        if !root {
            self.tgs[g.parent.index()].children.push(group.0);
        }
        // The kernel starts each group's timer at a random point of its period.
        let phase = crate::prng::Prng::stream(k.cfg.seed, (1 << 48) + u64::from(group.0))
            .below(g.bandwidth.period_us * 1000);
        self.tgs.push(Tg {
            shares: NICE_0,
            load_avg: 0,
            swept_at: 0,
            pool: Pool::kernel(phase, self.expire),
            children: Vec::new(),
            throttled: VecDeque::new(),
            period_armed: false,
            slack_armed: false,
        });
        if !root {
            self.set_shares(k, group);
            if k.groups[group.index()].bandwidth.quota_us.is_some() {
                self.set_bandwidth(k, group);
            }
        }
    }

    pub(crate) fn add_task(&mut self, k: &mut Kernel, task: TaskId) {
        let ent = self.order.ents.len() as u32;
        let mut e = Entity::new(task.0, NICE_0);
        let t = k.task_mut(task);
        t.ent = ent;
        e.idle = t.policy == Policy::Idle;
        e.weight = task_weight(t.policy, t.nice);
        if t.slice_ns > 0 {
            e.slice_ns = t.slice_ns;
            e.custom_slice = true;
        }
        // A new task counts as one that always ran.
        e.avg.attach(e.load() as u64);
        self.order.ents.push(e);
    }

    pub(crate) fn select_wake(&mut self, k: &Kernel, task: TaskId, waker: Waker) -> CpuId {
        // Taken out for the while, so that the class can be asked for loads.
        let mut placement = std::mem::take(&mut self.placement);
        let cpu = placement.select_wake(k, self, task, waker);
        self.placement = placement;
        cpu
    }

    pub(crate) fn select_new(&self, k: &Kernel, task: TaskId, parent: CpuId) -> CpuId {
        idlest_cpu(k, self, task, parent)
    }

    /// A CPU has begun to idle, or has stopped.
    pub(crate) fn idle_changed(&mut self, k: &mut Kernel, cpu: CpuId, idle: bool) {
        if idle {
            self.placement.became_idle(k, cpu);
            self.balance.begins_idle(k, cpu);
        } else {
            self.balance
                .left_idle(cpu, k.now - k.cpus[cpu.index()].idle_since);
        }
    }

    /// Takes a sleeper that is still queued back up where it is; false for any other task.
    pub(crate) fn wake_in_place(&mut self, k: &mut Kernel, task: TaskId) -> bool {
        let delayed = self.is_delayed(k, task);
        if delayed {
            self.wake_delayed(k, k.task(task).cpu, task);
        }
        delayed
    }

    /// A sleeper that is still queued leaves at once: it is about to change its group or CPU.
    pub(crate) fn forget_sleeper(&mut self, k: &mut Kernel, task: TaskId) {
        if self.is_delayed(k, task) {
            self.dequeue(k, k.task(task).cpu, task, Dequeue::Move);
        }
    }

    /// Tells the machine what is on a CPU.
    fn publish(&self, k: &mut Kernel, cpu: CpuId) {
        let root = self.order.root_of(cpu);
        let c = &mut k.cpus[cpu.index()];
        c.nr_runnable = root.h_runnable;
        c.nr_idle = root.h_idle;
        crate::sched::balance::note_tasks(k, cpu);
    }

    /// Whose turn it is on a CPU. The running task is still marked as running
    /// at each level; call [`Fair::switch`] with the answer.
    pub(crate) fn pick(&mut self, k: &mut Kernel, cpu: CpuId) -> Option<TaskId> {
        self.update_curr(k, cpu);
        'again: loop {
            let mut rq = cpu.0;
            if self.order.rq(rq).nr == 0 {
                return None;
            }
            let mut stops = false;
            loop {
                if self.order.rq(rq).limited {
                    self.check_runtime(k, rq);
                    stops |= self.order.rq(rq).throttled;
                }
                let ent = self.pick_entity(rq);
                if self.order.ent(ent).delayed {
                    self.finish_delayed(k, ent);
                    self.publish(k, cpu);
                    continue 'again;
                }
                let task = TaskId(self.order.ent(ent).task);
                match self.order.ent(ent).my_rq {
                    NONE if stops => {
                        self.stop_task(k, cpu, task);
                        continue 'again;
                    }
                    NONE => return Some(task),
                    mine => rq = mine,
                }
            }
        }
    }

    fn pick_entity(&self, rq: u32) -> u32 {
        let buddy = self.order.rq(rq).buddy;
        if buddy != NONE && self.order.eligible(rq, buddy) {
            return buddy;
        }
        self.order.pick_eevdf(rq)
    }

    /// Changes who runs: levels that both share are left as they are.
    pub(crate) fn switch(
        &mut self,
        k: &mut Kernel,
        cpu: CpuId,
        prev: Option<TaskId>,
        next: Option<TaskId>,
    ) {
        let mut out = prev.map_or(NONE, |task| k.task(task).ent);
        let mut into = next.map_or(NONE, |task| k.task(task).ent);
        if prev == next {
            return;
        }
        while out != NONE && into != NONE && self.order.ent(out).rq != self.order.ent(into).rq {
            let (out_depth, into_depth) = (self.depth(k, out), self.depth(k, into));
            if into_depth <= out_depth {
                self.put_prev(k, out);
                out = self.order.parent(out);
            }
            if into_depth >= out_depth {
                self.set_next(into);
                into = self.order.parent(into);
            }
        }
        if out != NONE && into != NONE {
            if out != into {
                self.put_prev(k, out);
                self.set_next(into);
            }
        } else {
            while out != NONE {
                self.put_prev(k, out);
                out = self.order.parent(out);
            }
            while into != NONE {
                self.set_next(into);
                into = self.order.parent(into);
            }
        }
        self.publish(k, cpu);
    }

    fn depth(&self, k: &Kernel, ent: u32) -> u32 {
        k.groups[self.order.rq(self.order.ent(ent).rq).group as usize].depth
    }

    fn put_prev(&mut self, k: &mut Kernel, ent: u32) {
        let rq = self.order.ent(ent).rq;
        if self.order.rq(rq).limited {
            self.check_runtime(k, rq);
        }
        if self.order.ent(ent).on_rq {
            self.update_load(k.now, rq);
            self.order.add_waiting(rq, ent);
        }
        self.order.rq_mut(rq).curr = NONE;
    }

    fn set_next(&mut self, ent: u32) {
        let rq = self.order.ent(ent).rq;
        self.order.clear_buddy(rq, ent);
        if self.order.ent(ent).on_rq {
            self.order.remove_waiting(rq, ent);
            self.order.protect(rq, ent);
        }
        self.order.rq_mut(rq).curr = ent;
    }

    /// The tick of a CPU that runs a fair task.
    pub(crate) fn tick(&mut self, k: &mut Kernel, cpu: CpuId, task: TaskId) {
        self.update_curr(k, cpu);
        let mut ent = k.task(task).ent;
        while ent != NONE {
            let rq = self.order.ent(ent).rq;
            self.update_load(k.now, rq);
            self.update_group_weight(k.now, ent);
            if self.order.rq(rq).group != 0 {
                self.sweep(k.now, self.order.rq(rq).group);
            }
            ent = self.order.rq(rq).ent;
        }
    }

    /// Whether a task that has just been queued is to run at once
    /// (check_preempt_wakeup_fair). Both are fair tasks.
    pub(crate) fn check_preempt(&mut self, k: &mut Kernel, cpu: CpuId, new: TaskId, curr: TaskId) {
        let policy = k.task(new).policy;
        let (mut into, mut out) = (k.task(new).ent, k.task(curr).ent);
        if k.needs_resched(cpu) {
            return;
        }
        // Up to the two that compete with each other.
        while self.order.ent(into).rq != self.order.ent(out).rq {
            let (into_depth, out_depth) = (self.depth(k, into), self.depth(k, out));
            if into_depth >= out_depth {
                into = self.order.parent(into);
            }
            if out_depth >= into_depth {
                out = self.order.parent(out);
            }
        }
        if into == out {
            return;
        }
        let (new_idle, curr_idle) = (self.order.ent(into).idle, self.order.ent(out).idle);
        if curr_idle && !new_idle {
            self.order.unprotect(out);
            k.resched(cpu);
            return;
        }
        if new_idle != curr_idle || policy != Policy::Normal {
            return;
        }
        self.update_curr(k, cpu);
        let rq = self.order.ent(into).rq;
        if self.order.wakeup_preempts(rq, into, out) {
            k.resched(cpu);
        }
    }
}
