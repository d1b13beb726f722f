//! Whose turn it is on one run queue: earliest eligible virtual deadline first.
//!
//! Each entity has received service up to its `vruntime`; the queue's virtual
//! time V is the mean of these, by weight. An entity whose vruntime is not past
//! V is eligible: it has not had more than its share. Among those the one with
//! the earliest deadline = vruntime + slice/weight runs. Source: Stoica and
//! Abdel-Wahab (1995); kernel/sched/fair.c, 6.18, with its default features
//! (RUN_TO_PARITY, PREEMPT_SHORT, DELAY_DEQUEUE, WAKEUP_PREEMPTION).
//!
//! V is kept as Σ (v − zero)·w over those who wait, with `zero` close to V, so that
//! products stay small: |v − zero| is at most two lag bounds, each
//! 2·max(slice, tick) in virtual time: 2·100 ms · 1024/2 for the lightest
//! entity, below 2^38; times a weight of 2^17 and 2^8 such entities, below 2^63.

use super::entity::Entity;
use super::order::Order;
use crate::kernel::NONE;

impl Order {
    /// The running entity of a queue, while it is on it.
    #[inline]
    fn curr_on(&self, rq: u32) -> Option<&Entity> {
        match self.rq(rq).curr {
            NONE => None,
            curr => Some(self.ent(curr)).filter(|e| e.on_rq),
        }
    }

    /// The queue's virtual time V; moves `zero` there.
    pub(super) fn avg_vruntime(&mut self, rq: u32) -> i64 {
        let q = self.rq(rq);
        let (mut sum, mut load) = (q.sum_key, q.sum_load);
        let curr = self.curr_on(rq);
        if let Some(curr) = curr {
            sum += (curr.vruntime - q.zero) * curr.load();
            load += curr.load();
        }
        if load == 0 {
            return q.zero;
        }
        // Rounded down, so that V itself is eligible.
        let delta = if q.sum_load == 0 {
            sum / load
        } else {
            sum.div_euclid(load)
        };
        let q = self.rq_mut(rq);
        q.sum_key -= q.sum_load * delta;
        q.zero += delta;
        q.zero
    }

    /// A test for eligibility on a queue: v − zero ≤ mean, without dividing.
    #[inline]
    fn eligibility(&self, rq: u32) -> impl Fn(i64) -> bool + use<> {
        let q = self.rq(rq);
        let (mut sum, mut load, zero) = (q.sum_key, q.sum_load, q.zero);
        if let Some(curr) = self.curr_on(rq) {
            sum += (curr.vruntime - zero) * curr.load();
            load += curr.load();
        }
        move |vruntime| sum >= (vruntime - zero) * load
    }

    pub(super) fn eligible(&self, rq: u32, ent: u32) -> bool {
        self.eligibility(rq)(self.ent(ent).vruntime)
    }

    /// What the queue owes the entity, in its virtual time, within bounds.
    pub(super) fn lag(&self, ent: u32, now_v: i64) -> i64 {
        let e = self.ent(ent);
        let limit = e.virtual_ns((2 * e.slice_ns).max(self.tick_ns));
        (now_v - e.vruntime).clamp(-limit, limit)
    }

    pub(super) fn update_lag(&mut self, rq: u32, ent: u32) {
        let now_v = self.avg_vruntime(rq);
        self.ent_mut(ent).vlag = self.lag(ent, now_v);
    }

    /// Gives an entity that enters its vruntime, with the lag it left with,
    /// and its deadline.
    pub(super) fn place(&mut self, rq: u32, ent: u32, initial: bool) {
        let now_v = self.avg_vruntime(rq);
        let base = self.base_slice_ns;
        let mut lag = 0;
        if self.rq(rq).nr > 0 {
            // Its own arrival moves V by its part: more lag now, so that it has
            // the lag it had. |lag| < 2^38 and weights sum to less than 2^25.
            let others = self.rq(rq).sum_load + self.curr_on(rq).map_or(0, Entity::load);
            let e = self.ent(ent);
            lag = e.vlag * (others + e.load()) / others.max(1);
        }
        let e = self.ent_mut(ent);
        if !e.custom_slice {
            e.slice_ns = base;
        }
        e.vruntime = now_v - lag;
        if std::mem::take(&mut e.rel_deadline) {
            e.deadline += e.vruntime;
            return;
        }
        // The others are half through their slices on average; so is a new one.
        let slice = if initial {
            e.virtual_ns(e.slice_ns) / 2
        } else {
            e.virtual_ns(e.slice_ns)
        };
        e.deadline = e.vruntime + slice;
    }

    /// A new deadline once the running entity has used its slice; true if so.
    #[inline]
    pub(super) fn update_deadline(&mut self, rq: u32, ent: u32) -> bool {
        if self.ent(ent).vruntime < self.ent(ent).deadline {
            return false;
        }
        let base = self.base_slice_ns;
        let e = self.ent_mut(ent);
        if !e.custom_slice {
            e.slice_ns = base;
        }
        e.deadline = e.vruntime + e.virtual_ns(e.slice_ns);
        self.avg_vruntime(rq);
        true
    }

    #[inline]
    pub(super) fn protected(&self, ent: u32) -> bool {
        let e = self.ent(ent);
        e.vruntime < e.protected
    }

    pub(super) fn unprotect(&mut self, ent: u32) {
        self.ent_mut(ent).protected = i64::MIN;
    }

    /// Protects an entity that is about to run and no longer waits, for the shortest slice that is
    /// queued (set_protect_slice, from 6.17 on).
    pub(super) fn protect(&mut self, rq: u32, ent: u32) {
        let least = self.waiting_slices(rq).min();
        let e = self.ent(ent);
        let shorter = least.filter(|&least| least < e.slice_ns);
        let until = shorter.map_or(i64::MAX, |least| e.vruntime + e.virtual_ns(least));
        self.ent_mut(ent).protected = until.min(self.ent(ent).deadline);
    }

    /// Whose turn it is. The queue has at least one entity.
    pub(super) fn pick_eevdf(&self, rq: u32) -> u32 {
        let q = self.rq(rq);
        let curr = match q.curr {
            NONE => NONE,
            curr if self.ent(curr).on_rq => curr,
            _ => NONE,
        };
        if q.nr == 1 {
            return if curr != NONE {
                curr
            } else {
                self.first_waiting(rq).unwrap_or(NONE)
            };
        }
        let eligible = self.eligibility(rq);
        let stays = curr != NONE && eligible(self.ent(curr).vruntime);
        if stays && self.protected(curr) {
            return curr;
        }
        let mut waiting = q.waiting.values().copied();
        match waiting.find(|&ent| eligible(self.ent(ent).vruntime)) {
            Some(best) if !stays || self.ent(curr).deadline >= self.ent(best).deadline => best,
            _ if stays => curr,
            // Rounding can leave no entity eligible: the running one, else the first.
            _ if curr != NONE => curr,
            _ => self.first_waiting(rq).unwrap_or(NONE),
        }
    }

    /// Whether `new`, which has just entered, is to run in place of `curr`.
    pub(super) fn wakeup_preempts(&mut self, rq: u32, new: u32, curr: u32) -> bool {
        let least = self.ent(new).slice_ns;
        if least >= self.ent(curr).slice_ns {
            return self.pick_eevdf(rq) == new;
        }
        // A shorter slice looks past the protection, and at least shortens it.
        let until = self.ent(curr).protected;
        self.unprotect(curr);
        if self.pick_eevdf(rq) == new {
            return true;
        }
        let c = self.ent_mut(curr);
        c.protected = until.min(c.vruntime + c.virtual_ns(least));
        false
    }
}
