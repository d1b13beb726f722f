//! Entering and leaving run queues, from the task up to the root.
//!
//! A task that enters takes its group's entity with it where that was not
//! queued yet, and so on upwards; one that leaves takes it out again where it
//! was the last. A sleeper that has had more than its share stays queued until the
//! others have caught up (delayed dequeue): so no task can shed what it owes by a
//! short sleep, and what is left of its lag is forgotten only once it is paid.

use super::{Dequeue, Fair};
use crate::ids::{CpuId, TaskId};
use crate::kernel::{Kernel, NONE};

#[derive(Clone, Copy)]
pub(super) struct Leave {
    /// It sleeps (a group: its last task left).
    pub(super) sleep: bool,
    /// It must go at once, whatever it owes.
    pub(super) special: bool,
    /// It slept before, and now its time on the queue is over.
    pub(super) delayed: bool,
    /// It is throttled: it must go at once, and so must the groups that it leaves empty.
    pub(super) stopped: bool,
}

impl Leave {
    pub(super) const SLEEP: Leave = Leave {
        sleep: true,
        special: false,
        delayed: false,
        stopped: false,
    };
    pub(super) const STOPPED: Leave = Leave {
        stopped: true,
        ..Leave::SLEEP
    };
}

impl Fair {
    /// Charges what the CPU's task ran: vruntime at every level, quotas, and
    /// whether its turn is over.
    #[inline]
    pub(crate) fn update_curr(&mut self, k: &mut Kernel, cpu: CpuId) {
        if let Some((task, delta)) = k.charge(cpu) {
            self.charge_chain(k, cpu, k.task(task).ent, delta);
        }
    }

    fn charge_chain(&mut self, k: &mut Kernel, cpu: CpuId, mut ent: u32, delta: u64) {
        while ent != NONE {
            let rq = self.order.ent(ent).rq;
            let e = self.order.ent_mut(ent);
            e.vruntime += e.virtual_ns(delta);
            let over = self.order.update_deadline(rq, ent);
            if self.order.rq(rq).limited {
                self.account_runtime(k, rq, delta);
            }
            if self.order.rq(rq).nr > 1 && (over || !self.order.protected(ent)) {
                k.resched(cpu);
                self.order.clear_buddy(rq, ent);
            }
            ent = self.order.rq(rq).ent;
        }
    }

    fn enqueue_entity(&mut self, k: &mut Kernel, rq: u32, ent: u32, is_new: bool) {
        self.update_load(k.now, rq);
        self.attach_load(k.now, rq, ent);
        self.update_group_weight(k.now, ent);
        self.order.place(rq, ent, is_new);
        let is_curr = self.order.rq(rq).curr == ent;
        let e = self.order.ent_mut(ent);
        e.on_rq = true;
        let weight = e.weight;
        let q = self.order.rq_mut(rq);
        q.load += weight;
        q.nr += 1;
        if !is_curr {
            self.order.add_waiting(rq, ent);
        }
        if self.order.rq(rq).nr == 1 && self.order.rq(rq).limited {
            self.check_enqueue_throttle(k, rq);
        }
    }

    /// Returns false if the entity stays to pay what it owes.
    pub(super) fn dequeue_entity(&mut self, k: &mut Kernel, rq: u32, ent: u32, how: Leave) -> bool {
        self.order.clear_buddy(rq, ent);
        let at_once = how.special || how.stopped || how.delayed;
        if how.sleep && !at_once && !self.order.eligible(rq, ent) {
            self.order.ent_mut(ent).delayed = true;
            return false;
        }
        self.update_load(k.now, rq);
        self.sleep_load(k.now, ent);
        self.order.update_lag(rq, ent);
        if self.order.rq(rq).curr != ent {
            self.order.remove_waiting(rq, ent);
        }
        let e = self.order.ent_mut(ent);
        if !how.sleep {
            e.deadline -= e.vruntime;
            e.rel_deadline = true;
        }
        e.on_rq = false;
        if how.delayed {
            // It has paid; what it earned by waiting while asleep does not count.
            e.delayed = false;
            e.vlag = e.vlag.min(0);
        }
        let weight = e.weight;
        let q = self.order.rq_mut(rq);
        q.load -= weight;
        q.nr -= 1;
        if q.nr == 0 && q.limited {
            self.return_runtime(k, rq);
        }
        self.update_group_weight(k.now, ent);
        true
    }

    /// Puts a task on a CPU's queue; `is_new`: it was on none before.
    pub(crate) fn enqueue(&mut self, k: &mut Kernel, cpu: CpuId, task: TaskId, is_new: bool) {
        k.list_add(cpu, task);
        self.enqueue_listed(k, cpu, task, is_new);
    }

    /// The same for one that is on the CPU's list of tasks.
    pub(super) fn enqueue_listed(
        &mut self,
        k: &mut Kernel,
        cpu: CpuId,
        task: TaskId,
        is_new: bool,
    ) {
        self.update_curr(k, cpu);
        let t = k.task(task);
        let (first, group) = (t.ent, t.group);
        let rq = self.order.rq_of(group, cpu);
        self.order.ent_mut(first).rq = rq;
        self.enqueue_up(k, first, is_new);
        let idle = i32::from(self.order.ent(first).idle);
        self.order.count(rq, 1, 1, idle);
        self.publish(k, cpu);
    }

    /// Enqueues an entity and those above it that are not queued.
    pub(super) fn enqueue_up(&mut self, k: &mut Kernel, mut ent: u32, mut is_new: bool) {
        let mut slice = 0;
        while ent != NONE {
            let rq = self.order.ent(ent).rq;
            if self.order.ent(ent).on_rq {
                if self.order.ent(ent).delayed {
                    self.order.requeue_delayed(ent);
                }
                break;
            }
            if slice > 0 {
                let e = self.order.ent_mut(ent);
                e.slice_ns = slice;
                e.custom_slice = true;
            }
            self.enqueue_entity(k, rq, ent, is_new);
            slice = self.order.min_slice(rq);
            is_new = false;
            ent = self.order.rq(rq).ent;
        }
        self.refresh_up(k, ent, slice);
    }

    /// Brings weights and slices of the queued entities from `ent` upwards up
    /// to date with what changed below them.
    pub(super) fn refresh_up(&mut self, k: &mut Kernel, mut ent: u32, mut slice: u64) {
        while ent != NONE {
            let rq = self.order.ent(ent).rq;
            self.update_load(k.now, rq);
            self.update_group_weight(k.now, ent);
            if slice != u64::MAX && slice > 0 {
                self.order.set_slice(ent, slice);
            }
            slice = self.order.min_slice(rq);
            ent = self.order.rq(rq).ent;
        }
    }

    /// Takes a task off its queue, or lets EEVDF keep it there for a while: it is asleep all the
    /// same.
    pub(crate) fn dequeue(&mut self, k: &mut Kernel, cpu: CpuId, task: TaskId, why: Dequeue) {
        self.update_curr(k, cpu);
        let ent = k.task(task).ent;
        let rq = self.order.ent(ent).rq;
        let idle = i32::from(self.order.ent(ent).idle);
        if self.forget_stopped(ent) {
            k.list_del(cpu, task);
            return;
        }
        if self.order.ent(ent).delayed {
            // It sleeps already, and is moved: its stay is over.
            self.finish_delayed(k, ent);
            self.publish(k, cpu);
            return;
        }
        let how = Leave {
            sleep: why != Dequeue::Move,
            special: why == Dequeue::Exit,
            ..Leave::SLEEP
        };
        k.list_del(cpu, task);
        let left = self.dequeue_up(k, ent, how);
        self.order.count(
            rq,
            if left { -1 } else { 0 },
            -1,
            if left { -idle } else { 0 },
        );
        self.publish(k, cpu);
    }

    /// Ends a sleeping task's or empty group's stay on its queue.
    pub(super) fn finish_delayed(&mut self, k: &mut Kernel, ent: u32) {
        let rq = self.order.ent(ent).rq;
        let how = Leave {
            delayed: true,
            ..Leave::SLEEP
        };
        self.dequeue_up(k, ent, how);
        if self.order.ent(ent).task != NONE {
            let idle = i32::from(self.order.ent(ent).idle);
            self.order.count(rq, -1, 0, -idle);
        }
    }

    pub(super) fn dequeue_up(&mut self, k: &mut Kernel, first: u32, mut how: Leave) -> bool {
        let task_sleeps = how.sleep;
        let mut ent = first;
        let mut slice = 0;
        while ent != NONE {
            let rq = self.order.ent(ent).rq;
            if !self.dequeue_entity(k, rq, ent, how) {
                if ent == first {
                    return false;
                }
                slice = self.order.min_slice(rq);
                break;
            }
            ent = self.order.rq(rq).ent;
            if self.order.rq(rq).nr > 0 {
                slice = self.order.min_slice(rq);
                if task_sleeps && ent != NONE && !self.order.throttled_above(rq) {
                    self.order.set_buddy(ent);
                }
                break;
            }
            how = Leave {
                stopped: how.stopped,
                ..Leave::SLEEP
            };
        }
        self.refresh_up(k, ent, slice);
        true
    }

    /// Whether a task sleeps but is still on its queue.
    pub(crate) fn is_delayed(&self, k: &Kernel, task: TaskId) -> bool {
        self.order.ent(k.task(task).ent).delayed
    }

    /// Wakes a task that had not left its queue yet.
    pub(crate) fn wake_delayed(&mut self, k: &mut Kernel, cpu: CpuId, task: TaskId) {
        self.update_curr(k, cpu);
        let ent = k.task(task).ent;
        let rq = self.order.ent(ent).rq;
        self.order.requeue_delayed(ent);
        k.list_add(cpu, task);
        self.order.count(rq, 0, 1, 0);
        self.publish(k, cpu);
    }
}
