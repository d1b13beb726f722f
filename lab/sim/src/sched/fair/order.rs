//! Entities, their run queues, and the rule by which one of them is first ([`super::eevdf`]).

use super::entity::{Entity, Rq};
use crate::ids::{CpuId, GroupId};
use crate::kernel::NONE;

/// All run queues of the class.
pub(crate) struct Order {
    /// The slice of an entity without its own.
    pub(super) base_slice_ns: u64,
    pub(crate) ents: Vec<Entity>,
    pub(super) rqs: Vec<Rq>,
    pub(super) ncpu: u32,
    pub(super) tick_ns: u64,
}

impl Order {
    #[inline]
    pub(crate) fn rq_of(&self, group: GroupId, cpu: CpuId) -> u32 {
        group.0 * self.ncpu + cpu.0
    }

    /// The queue of all on a CPU.
    #[inline]
    pub(crate) fn root_of(&self, cpu: CpuId) -> &Rq {
        &self.rqs[cpu.index()]
    }

    #[inline]
    pub(super) fn rq(&self, rq: u32) -> &Rq {
        &self.rqs[rq as usize]
    }

    #[inline]
    pub(super) fn rq_mut(&mut self, rq: u32) -> &mut Rq {
        &mut self.rqs[rq as usize]
    }

    #[inline]
    pub(super) fn ent(&self, ent: u32) -> &Entity {
        &self.ents[ent as usize]
    }

    #[inline]
    pub(super) fn ent_mut(&mut self, ent: u32) -> &mut Entity {
        &mut self.ents[ent as usize]
    }

    /// The entity of the group whose queue this entity is on.
    #[inline]
    pub(super) fn parent(&self, ent: u32) -> u32 {
        self.rq(self.ent(ent).rq).ent
    }

    /// Puts an entity among those who wait.
    pub(super) fn add_waiting(&mut self, rq: u32, ent: u32) {
        let q = &mut self.rqs[rq as usize];
        let e = &mut self.ents[ent as usize];
        q.seq += 1;
        e.place = (e.deadline, q.seq);
        q.sum_key += (e.vruntime - q.zero) * e.load();
        q.sum_load += e.load();
        q.waiting.insert(e.place, ent);
    }

    pub(super) fn remove_waiting(&mut self, rq: u32, ent: u32) {
        let q = &mut self.rqs[rq as usize];
        let e = &self.ents[ent as usize];
        q.sum_key -= (e.vruntime - q.zero) * e.load();
        q.sum_load -= e.load();
        q.waiting.remove(&e.place);
    }

    /// The shortest slice on a queue: what its group's entity asks for.
    pub(super) fn min_slice(&self, rq: u32) -> u64 {
        let q = self.rq(rq);
        let running = (q.curr != NONE && self.ent(q.curr).on_rq).then(|| self.ent(q.curr).slice_ns);
        let least = self.waiting_slices(rq).chain(running).min();
        least.unwrap_or(u64::MAX)
    }

    /// The slices of those who wait.
    pub(super) fn waiting_slices(&self, rq: u32) -> impl Iterator<Item = u64> {
        self.rq(rq)
            .waiting
            .values()
            .map(|&ent| self.ent(ent).slice_ns)
    }

    /// The first of those who wait.
    pub(super) fn first_waiting(&self, rq: u32) -> Option<u32> {
        self.rq(rq).waiting.values().next().copied()
    }

    /// Gives a queued group entity the slice that its queue asks for.
    pub(super) fn set_slice(&mut self, ent: u32, slice_ns: u64) {
        if self.ent(ent).slice_ns == slice_ns {
            return;
        }
        let rq = self.ent(ent).rq;
        // Among equals that wait it goes behind the others.
        let waits = self.ent(ent).on_rq && self.rq(rq).curr != ent;
        if waits {
            self.remove_waiting(rq, ent);
        }
        self.ent_mut(ent).slice_ns = slice_ns;
        if waits {
            self.add_waiting(rq, ent);
        }
    }

    /// Adds to the counts of tasks from a queue upwards.
    pub(super) fn count(&mut self, mut rq: u32, queued: i32, runnable: i32, mut idle: i32) {
        loop {
            let q = self.rq_mut(rq);
            q.h_queued = q.h_queued.wrapping_add_signed(queued);
            q.h_runnable = q.h_runnable.wrapping_add_signed(runnable);
            q.h_idle = q.h_idle.wrapping_add_signed(idle);
            if q.idle {
                idle = queued;
            }
            let above = q.ent;
            if above == NONE {
                return;
            }
            rq = self.ent(above).rq;
        }
    }

    /// Adds a queue's counts to those above it, or takes them off.
    pub(super) fn count_above(&mut self, rq: u32, sign: i32) {
        let q = self.rq(rq);
        let (queued, runnable) = (q.h_queued as i32 * sign, q.h_runnable as i32 * sign);
        let idle = if q.idle {
            queued
        } else {
            q.h_idle as i32 * sign
        };
        let above = self.ent(q.ent).rq;
        self.count(above, queued, runnable, idle);
    }

    /// A delayed entity wants to run again: what it gained while asleep is cut off.
    pub(super) fn requeue_delayed(&mut self, ent: u32) {
        let rq = self.ent(ent).rq;
        self.update_lag(rq, ent);
        if self.ent(ent).vlag > 0 {
            let is_curr = self.rq(rq).curr == ent;
            self.rq_mut(rq).nr -= 1;
            if !is_curr {
                self.remove_waiting(rq, ent);
            }
            self.ent_mut(ent).vlag = 0;
            self.place(rq, ent, false);
            if !is_curr {
                self.add_waiting(rq, ent);
            }
            self.rq_mut(rq).nr += 1;
        }
        self.ent_mut(ent).delayed = false;
    }

    pub(super) fn set_buddy(&mut self, mut ent: u32) {
        while ent != NONE && self.ent(ent).on_rq && !self.ent(ent).idle {
            let rq = self.ent(ent).rq;
            self.rq_mut(rq).buddy = ent;
            ent = self.rq(rq).ent;
        }
    }

    pub(super) fn clear_buddy(&mut self, mut rq: u32, mut ent: u32) {
        while self.rq(rq).buddy == ent {
            self.rq_mut(rq).buddy = NONE;
            ent = self.rq(rq).ent;
            if ent == NONE {
                return;
            }
            rq = self.ent(ent).rq;
        }
    }

    /// Whether a queue or one above it is throttled.
    pub(crate) fn throttled_above(&self, mut rq: u32) -> bool {
        loop {
            let q = self.rq(rq);
            if q.throttled {
                return true;
            }
            if q.ent == NONE {
                return false;
            }
            rq = self.ent(q.ent).rq;
        }
    }
}
