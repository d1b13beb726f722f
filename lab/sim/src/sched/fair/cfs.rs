//! Whose turn it is on one run queue, in kernels before 6.6: least virtual runtime first.
//!
//! Source: kernel/sched/fair.c of Linux 6.1. Who has had the least CPU time for its weight runs,
//! for a slice that is its part of a latency period (6 ms · (1 + log2 CPUs), more when more than 8
//! tasks wait). A sleeper comes back at most half a period behind the others, and preempts if it is
//! a wakeup granularity behind the running one. A tick ends a slice. The entity that preempted is
//! preferred at the pick (`buddy`, the kernel's next), then the preempted one (`last`), if that is
//! not unfair by more than the granularity.
//!
//! `latency_nice` adds the patches of 2022 that give each task and group a latency offset within
//! plus or minus one period: it moves the comparison at wakeup preemption and at the pick, never
//! vruntime itself, so shares stay as they were.
//!
//! vruntime is relative to the queue's `min_vruntime` only while a runnable entity moves between
//! queues; a sleeper's stays absolute on the queue that it left (`home`) until it wakes elsewhere.

use super::order::Order;
use crate::config::{CfsConfig, Scheduler};
use crate::ids::{CpuId, TaskId};
use crate::kernel::{Kernel, NONE};

/// Which way a comparison for preemption goes (wakeup_preempt_entity).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Behind {
    /// The other is not behind the running one at all.
    No,
    /// Behind, by less than the granularity.
    Little,
    Enough,
}

impl Order {
    /// The tunables, when this is the older class.
    #[inline]
    pub(super) fn cfs(&self) -> Option<&CfsConfig> {
        match &self.scheduler {
            Scheduler::Cfs(config) => Some(config),
            Scheduler::Eevdf(_) => None,
        }
    }

    /// Moves the queue's least vruntime on: never back, and never past anyone on the queue.
    pub(super) fn update_min_vruntime(&mut self, rq: u32) {
        let q = self.rq(rq);
        let waiting = self.first_waiting(rq).map(|first| self.ent(first).vruntime);
        let running = (q.curr != NONE && self.ent(q.curr).on_rq).then(|| self.ent(q.curr).vruntime);
        let least = match (waiting, running) {
            (Some(a), Some(b)) => a.min(b),
            (Some(a), None) | (None, Some(a)) => a,
            (None, None) => return,
        };
        let q = self.rq_mut(rq);
        q.min_vruntime = q.min_vruntime.max(least);
    }

    /// The part of a latency period that is an entity's: by weight at each level, among all tasks
    /// of the CPU.
    ///
    /// A period is below 2^36 (10^4 tasks of 3 ms) and a weight below 2^27: the product is below
    /// 2^63.
    fn cfs_slice_ns(&self, config: &CfsConfig, rq: u32, ent: u32) -> u64 {
        let first_cpu = CpuId(self.rq(rq).cpu);
        let tasks = u64::from(self.root_of(first_cpu).h_queued) + u64::from(!self.ent(ent).on_rq);
        let at_once = config.latency_ns / config.min_granularity_ns.max(1);
        let mut slice_ns = if tasks > at_once {
            tasks * config.min_granularity_ns
        } else {
            config.latency_ns
        };
        let (mut rq, mut ent) = (rq, ent);
        loop {
            let (weight, on_rq) = (self.ent(ent).weight, self.ent(ent).on_rq);
            let load = self.rq(rq).load + if on_rq { 0 } else { weight };
            slice_ns = slice_ns * weight / load.max(1);
            ent = self.rq(rq).ent;
            if ent == NONE {
                return slice_ns.max(config.min_granularity_ns);
            }
            rq = self.ent(ent).rq;
        }
    }

    /// Gives an entity that enters its vruntime (place_entity, and what enqueue_entity does around
    /// it).
    pub(super) fn cfs_place(&mut self, rq: u32, ent: u32, initial: bool) {
        let Some(config) = self.cfs().cloned() else {
            return;
        };
        let min_vruntime = self.rq(rq).min_vruntime;
        let home = self.ent(ent).home;
        if std::mem::take(&mut self.ent_mut(ent).rel_deadline) {
            self.ent_mut(ent).vruntime += min_vruntime;
            self.ent_mut(ent).home = rq;
            return;
        }
        // A sleeper that wakes elsewhere brings its distance from the queue's least.
        let moved = if home == NONE || home == rq {
            0
        } else {
            min_vruntime - self.rq(home).min_vruntime
        };
        let least = if initial {
            // The running period is promised already: a new one fits in at its end.
            let slice_ns = self.cfs_slice_ns(&config, rq, ent);
            min_vruntime + self.ent(ent).virtual_ns(slice_ns)
        } else {
            let credit_ns = if self.ent(ent).idle {
                config.min_granularity_ns
            } else {
                config.latency_ns
            };
            min_vruntime - (credit_ns / 2) as i64
        };
        let e = self.ent_mut(ent);
        e.vruntime = if home == NONE {
            least
        } else {
            least.max(e.vruntime + moved)
        };
        e.home = rq;
    }

    /// What stays of an entity's vruntime when it leaves; called after it has left those who wait.
    pub(super) fn cfs_leave(&mut self, rq: u32, ent: u32, sleep: bool) {
        if !sleep {
            let min_vruntime = self.rq(rq).min_vruntime;
            let e = self.ent_mut(ent);
            e.vruntime -= min_vruntime;
            e.rel_deadline = true;
        }
        self.ent_mut(ent).home = rq;
    }

    /// A new weight: what was run stays as it was counted.
    pub(super) fn cfs_reweight(&mut self, ent: u32, weight: u64) {
        let e = self.ent_mut(ent);
        let (before, on_rq, rq) = (std::mem::replace(&mut e.weight, weight), e.on_rq, e.rq);
        if on_rq {
            let q = self.rq_mut(rq);
            q.load = q.load - before + weight;
        }
    }

    /// How far `other` is behind `curr`: as preemption at wakeup and the buddies at a pick see it.
    fn behind(&self, config: &CfsConfig, curr: u32, other: u32) -> Behind {
        let behind = self.ent(curr).vruntime - self.ent(other).vruntime;
        let granularity = self.ent(other).virtual_ns(config.wakeup_granularity_ns);
        // The least difference that is behind at all, and the greatest that is only a little.
        let (least, little) = if config.latency_nice {
            let period = config.latency_ns as i64;
            let hint = self.hint_between(config, curr, other).min(period);
            // A sleeper's credit is bounded by the period; a light task must still be able to
            // preempt.
            (hint, (hint + granularity).min(period))
        } else {
            (1, granularity)
        };
        match behind {
            d if d < least => Behind::No,
            d if d <= little => Behind::Little,
            _ => Behind::Enough,
        }
    }

    /// How far the other's place moves by hints, beside the running one. Between two that can wait
    /// only its own counts.
    fn hint_between(&self, config: &CfsConfig, curr: u32, other: u32) -> i64 {
        let offsets = [other, curr].map(|ent| self.latency_offset(config, ent));
        if offsets.iter().all(|&offset| offset >= 0) {
            offsets[0]
        } else {
            offsets[0] - offsets[1]
        }
    }

    /// A hint of -20 is one period ahead, 20 one behind.
    fn latency_offset(&self, config: &CfsConfig, ent: u32) -> i64 {
        i64::from(self.ent(ent).latency) * config.latency_ns as i64 / 20
    }

    /// Whose turn it is. The queue has at least one entity.
    pub(super) fn pick_cfs(&self, config: &CfsConfig, rq: u32) -> u32 {
        let q = self.rq(rq);
        let curr = if q.curr != NONE && self.ent(q.curr).on_rq {
            q.curr
        } else {
            NONE
        };
        // By vruntime: the first that waits or the one that runs; of equals the one that waits.
        let least = match self.first_waiting(rq) {
            Some(first) if curr == NONE || self.ent(first).vruntime <= self.ent(curr).vruntime => {
                first
            }
            _ => curr,
        };
        let mut buddies = [q.buddy, q.last]
            .into_iter()
            .filter(|&buddy| buddy != NONE && self.ent(buddy).on_rq);
        let fair = buddies.find(|&buddy| self.behind(config, buddy, least) < Behind::Enough);
        fair.unwrap_or(least)
    }

    /// The tick: an entity that has had its slice, or is a slice ahead of the first that waits,
    /// goes.
    pub(super) fn cfs_tick(&mut self, k: &mut Kernel, cpu: CpuId, task: TaskId) {
        let Some(config) = self.cfs().cloned() else {
            return;
        };
        let mut ent = k.task(task).ent;
        while ent != NONE {
            let rq = self.ent(ent).rq;
            if self.rq(rq).nr > 1 {
                let slice_ns = self.cfs_slice_ns(&config, rq, ent);
                let ran_ns = self.ent(ent).ran_ns;
                if ran_ns > slice_ns {
                    k.resched(cpu);
                    self.clear_buddy(rq, ent);
                } else if ran_ns >= config.min_granularity_ns
                    && let Some(first) = self.first_waiting(rq)
                    && self.ent(ent).vruntime - self.ent(first).vruntime > slice_ns as i64
                {
                    k.resched(cpu);
                }
            }
            ent = self.rq(rq).ent;
        }
    }

    /// Whether `new`, which has just entered, is to run in place of `curr`; both are on the queue.
    pub(super) fn cfs_wakeup_preempts(&mut self, rq: u32, new: u32, curr: u32) -> bool {
        let Some(config) = self.cfs().cloned() else {
            return false;
        };
        if self.behind(&config, curr, new) != Behind::Enough {
            return false;
        }
        self.set_buddy(new);
        let at_once = config.latency_ns / config.min_granularity_ns.max(1);
        if u64::from(self.rq(rq).nr) >= at_once && self.ent(curr).task != NONE {
            self.set_last(curr);
        }
        true
    }

    /// Who was preempted goes on after that, if it is fair: its cache is warm.
    fn set_last(&mut self, mut ent: u32) {
        while ent != NONE && self.ent(ent).on_rq && !self.ent(ent).idle {
            let rq = self.ent(ent).rq;
            self.rq_mut(rq).last = ent;
            ent = self.rq(rq).ent;
        }
    }

    /// An entity that runs or leaves is no buddy any more.
    pub(super) fn cfs_clear_last(&mut self, mut rq: u32, mut ent: u32) {
        while self.rq(rq).last == ent {
            self.rq_mut(rq).last = NONE;
            ent = self.rq(rq).ent;
            if ent == NONE {
                return;
            }
            rq = self.ent(ent).rq;
        }
    }
}
