//! A group's weight on each CPU, and changes of weight.
//!
//! A group of `shares` that is busy on several CPUs has on each the part of
//! them that its load there is of its load everywhere (calc_group_shares in
//! kernel/sched/fair.c). The load elsewhere is a mean over the last while, what is here is
//! exact, so the parts add to a little more than the whole while a group moves.

use super::Fair;
use super::weight::{SHARES_MIN, group_shares};
use crate::Ns;
use crate::ids::{CpuId, GroupId, TaskId};
use crate::kernel::{Kernel, NONE};

/// How often what a group left behind on CPUs is looked at again.
const SWEEP_NS: Ns = 32_000_000;
/// At most once in this long a queue tells its group of its load.
const CONTRIBUTE_NS: Ns = 1_000_000;

impl Fair {
    /// Brings a queue's load mean up to now and its group's sum with it.
    #[inline]
    pub(super) fn update_load(&mut self, now: Ns, rq: u32) {
        let q = &mut self.order.rqs[rq as usize];
        let load = q.load_down();
        q.avg.update(now, load);
        if q.ent != NONE && now - q.contributed_at >= CONTRIBUTE_NS {
            self.contribute(now, rq);
        }
    }

    fn contribute(&mut self, now: Ns, rq: u32) {
        let q = &mut self.order.rqs[rq as usize];
        let (old, new) = (q.contributed, q.avg.load());
        if old.abs_diff(new) > old / 64 {
            let tg = &mut self.tgs[q.group as usize];
            tg.load_avg = tg.load_avg + new - old;
            q.contributed = new;
            q.contributed_at = now;
        }
    }

    /// Where a group no longer runs its load fades; nothing there updates it, so
    /// this does (the kernel: update_blocked_averages).
    pub(super) fn sweep(&mut self, now: Ns, group: u32) {
        let tg = &mut self.tgs[group as usize];
        if now - tg.swept_at < SWEEP_NS {
            return;
        }
        tg.swept_at = now;
        for cpu in 0..self.order.ncpu {
            let rq = self.order.rq_of(GroupId(group), CpuId(cpu));
            if self.order.rq(rq).contributed > 0 && self.order.rq(rq).load == 0 {
                self.update_load(now, rq);
            }
        }
    }

    /// Counts a task's load where it is now.
    pub(super) fn attach_load(&mut self, now: Ns, rq: u32, ent: u32) {
        let e = &mut self.order.ents[ent as usize];
        if e.task == NONE {
            return;
        }
        e.avg.update(now, 0);
        if e.avg_rq == rq {
            return;
        }
        let (load, old) = (e.avg.load(), std::mem::replace(&mut e.avg_rq, rq));
        if old != NONE {
            self.order.rq_mut(old).avg.detach(load);
        }
        self.order.rq_mut(rq).avg.attach(load);
    }

    /// The task's own mean, up to the moment that it leaves.
    pub(super) fn sleep_load(&mut self, now: Ns, ent: u32) {
        let e = &mut self.order.ents[ent as usize];
        if e.task != NONE {
            let load = e.load() as u64;
            e.avg.update(now, load);
        }
    }

    /// Gives a group's entity the weight that its queue's load calls for.
    #[inline]
    pub(super) fn update_group_weight(&mut self, now: Ns, ent: u32) {
        let my_rq = self.order.ent(ent).my_rq;
        // An empty group keeps its weight: it may still owe.
        if my_rq == NONE || self.order.rq(my_rq).load == 0 {
            return;
        }
        self.update_load(now, my_rq);
        let weight = self.calc_shares(my_rq);
        if weight != self.order.ent(ent).weight {
            self.reweight(ent, weight);
        }
    }

    /// shares · load here / load everywhere. Shares < 2^27, load < 2^27.
    fn calc_shares(&self, rq: u32) -> u64 {
        let q = self.order.rq(rq);
        let tg = &self.tgs[q.group as usize];
        let load = q.load_down().max(q.avg.load());
        let all = (tg.load_avg + load).saturating_sub(q.contributed).max(1);
        (tg.shares * load / all).clamp(SHARES_MIN, tg.shares)
    }

    /// Changes an entity's weight; its lag in CPU time stays. The CPU's running
    /// task has been charged.
    pub(super) fn reweight(&mut self, ent: u32, weight: u64) {
        let (rq, old) = (self.order.ent(ent).rq, self.order.ent(ent).weight);
        let scale = |virtual_ns: i64| scale(virtual_ns, old, weight);
        if !self.order.ent(ent).on_rq {
            let e = self.order.ent_mut(ent);
            e.vlag = scale(e.vlag);
            e.weight = weight;
            return;
        }
        let now_v = self.order.avg_vruntime(rq);
        let is_curr = self.order.rq(rq).curr == ent;
        if !is_curr {
            self.order.remove_waiting(rq, ent);
        }
        let limit = self.order.lag(ent, now_v);
        let e = self.order.ent_mut(ent);
        if now_v != e.vruntime {
            e.vruntime = now_v - scale(limit);
        }
        e.deadline = now_v + scale(e.deadline - now_v);
        if e.protected != i64::MIN {
            e.protected = now_v + scale(e.protected - now_v);
        }
        let before = std::mem::replace(&mut e.weight, weight);
        let q = self.order.rq_mut(rq);
        q.load = q.load - before + weight;
        if !is_curr {
            self.order.add_waiting(rq, ent);
        }
    }

    /// cpu.weight or cpu.idle was written.
    pub(crate) fn set_shares(&mut self, k: &mut Kernel, group: GroupId) {
        let spec = &k.groups[group.index()].spec;
        let (shares, idle) = (group_shares(spec.weight, spec.idle), spec.idle);
        self.tgs[group.index()].shares = shares;
        for cpu in 0..self.order.ncpu {
            let cpu = CpuId(cpu);
            self.update_curr(k, cpu);
            let rq = self.order.rq_of(group, cpu);
            let ent = self.order.rq(rq).ent;
            if self.order.rq(rq).idle != idle {
                self.set_idle(rq, idle);
            }
            if self.order.ent(ent).on_rq {
                self.update_group_weight(k.now, ent);
                let (above, slice) = (
                    self.order.parent(ent),
                    self.order.min_slice(self.order.ent(ent).rq),
                );
                self.refresh_up(k, above, slice);
            } else if self.order.rq(rq).load == 0 {
                self.reweight(ent, shares);
            }
            self.publish(k, cpu);
        }
    }

    /// The tasks below count as idle-class for everything above, or no longer.
    fn set_idle(&mut self, rq: u32, idle: bool) {
        self.order.count_above(rq, -1);
        self.order.rq_mut(rq).idle = idle;
        self.order.count_above(rq, 1);
        let ent = self.order.rq(rq).ent;
        self.order.ent_mut(ent).idle = idle;
    }
}

/// virtual time · old / new. The product seldom needs more than 64 bits.
fn scale(virtual_ns: i64, old: u64, new: u64) -> i64 {
    match virtual_ns.checked_mul(old as i64) {
        Some(product) => product / new as i64,
        None => (i128::from(virtual_ns) * i128::from(old) / i128::from(new)) as i64,
    }
}

impl Fair {
    /// The CPU's load: the mean of its runnable tasks' weights.
    pub(crate) fn cpu_load(&self, cpu: CpuId) -> u64 {
        self.order.root_of(cpu).load_avg()
    }

    /// A task's part of its CPU's load: its own mean, times its group's part of the CPU at each
    /// level (task_h_load).
    pub(crate) fn task_load(&self, k: &Kernel, task: TaskId) -> u64 {
        let mut ent = k.task(task).ent;
        // A mean is below 2^27: the product is below 2^54.
        let mut load = self.order.ent(ent).avg.load();
        // A new task has not been on a queue yet.
        if self.order.ent(ent).rq == NONE {
            return 0;
        }
        loop {
            let rq = self.order.rq(self.order.ent(ent).rq);
            ent = rq.ent;
            if ent == NONE {
                return load;
            }
            // A task is at most all of its queue; the two means may differ for a while.
            let all = rq.load_avg().max(1);
            load = load.min(all) * self.order.ent(ent).load() as u64 / all;
        }
    }
}
