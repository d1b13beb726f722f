//! The walk from the root down to the task whose turn it is, and what changes
//! in the queues when the CPU turns from one task to another.

use super::Fair;
use crate::ids::{CpuId, TaskId};
use crate::kernel::{Kernel, NONE};
use crate::spec::Policy;

impl Fair {
    /// Whose turn it is on a CPU. The running task is still marked as running
    /// at each level; call [`Fair::switch`] with the answer.
    pub(crate) fn pick(&mut self, k: &mut Kernel, cpu: CpuId) -> Option<TaskId> {
        self.update_curr(k, cpu);
        'again: loop {
            let mut rq = cpu.0;
            if self.rq(rq).nr == 0 {
                return None;
            }
            let mut stops = false;
            loop {
                if self.rq(rq).limited {
                    if self.check_runtime(k, rq) && !self.throttle_tasks {
                        self.publish(k, cpu);
                        continue 'again;
                    }
                    stops |= self.rq(rq).throttled;
                }
                let ent = self.pick_entity(rq);
                if self.ent(ent).delayed {
                    self.finish_delayed(k, ent);
                    self.publish(k, cpu);
                    continue 'again;
                }
                let task = TaskId(self.ent(ent).task);
                match self.ent(ent).my_rq {
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
        if let Some(config) = self.cfs() {
            return self.pick_cfs(config, rq);
        }
        let buddy = self.rq(rq).buddy;
        if buddy != NONE && self.eligible(rq, buddy) {
            return buddy;
        }
        self.pick_eevdf(rq)
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
        while out != NONE && into != NONE && self.ent(out).rq != self.ent(into).rq {
            let (out_depth, into_depth) = (self.depth(k, out), self.depth(k, into));
            if into_depth <= out_depth {
                self.put_prev(k, out);
                out = self.parent(out);
            }
            if into_depth >= out_depth {
                self.set_next(into);
                into = self.parent(into);
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
                out = self.parent(out);
            }
            while into != NONE {
                self.set_next(into);
                into = self.parent(into);
            }
        }
        self.publish(k, cpu);
    }

    fn depth(&self, k: &Kernel, ent: u32) -> u32 {
        k.groups[self.rq(self.ent(ent).rq).group as usize].depth
    }

    fn put_prev(&mut self, k: &mut Kernel, ent: u32) {
        let rq = self.ent(ent).rq;
        if self.rq(rq).limited {
            self.check_runtime(k, rq);
        }
        if self.ent(ent).on_rq {
            self.update_load(k.now, rq);
            self.tree_add(rq, ent);
        }
        self.rq_mut(rq).curr = NONE;
    }

    fn set_next(&mut self, ent: u32) {
        let rq = self.ent(ent).rq;
        self.clear_buddy(rq, ent);
        if self.ent(ent).on_rq {
            self.tree_del(rq, ent);
            self.protect(rq, ent);
        }
        self.ent_mut(ent).ran_ns = 0;
        self.rq_mut(rq).curr = ent;
    }

    /// The tick of a CPU that runs a fair task.
    pub(crate) fn tick(&mut self, k: &mut Kernel, cpu: CpuId, task: TaskId) {
        self.update_curr(k, cpu);
        if self.cfs().is_some() {
            self.cfs_tick(k, cpu, task);
        }
        let mut ent = k.task(task).ent;
        while ent != NONE {
            let rq = self.ent(ent).rq;
            self.update_load(k.now, rq);
            self.update_group_weight(k.now, ent);
            if self.rq(rq).group != 0 {
                self.sweep(k.now, self.rq(rq).group);
            }
            ent = self.rq(rq).ent;
        }
    }

    /// Whether a task that has just been queued is to run at once
    /// (check_preempt_wakeup_fair). Both are fair tasks.
    pub(crate) fn check_preempt(&mut self, k: &mut Kernel, cpu: CpuId, new: TaskId, curr: TaskId) {
        let policy = k.task(new).policy;
        let (mut into, mut out) = (k.task(new).ent, k.task(curr).ent);
        if k.needs_resched(cpu) || !self.eevdf().wakeup_preemption {
            return;
        }
        if self.detached_above(self.ent(into).rq) {
            return;
        }
        // Up to the two that compete with each other.
        while self.ent(into).rq != self.ent(out).rq {
            let (into_depth, out_depth) = (self.depth(k, into), self.depth(k, out));
            if into_depth >= out_depth {
                into = self.parent(into);
            }
            if out_depth >= into_depth {
                out = self.parent(out);
            }
        }
        if into == out {
            return;
        }
        let (new_idle, curr_idle) = (self.ent(into).idle, self.ent(out).idle);
        if curr_idle && !new_idle {
            self.unprotect(out);
            k.resched(cpu);
            return;
        }
        if new_idle != curr_idle || policy != Policy::Normal {
            return;
        }
        self.update_curr(k, cpu);
        let rq = self.ent(into).rq;
        if self.wakeup_preempts(rq, into, out) {
            k.resched(cpu);
        }
    }

    /// sched_yield: gives up what is left of the slice.
    pub(crate) fn yield_now(&mut self, k: &mut Kernel, cpu: CpuId, task: TaskId) {
        if k.cpus[cpu.index()].nr_queued <= 1 {
            return;
        }
        let ent = k.task(task).ent;
        let rq = self.ent(ent).rq;
        self.clear_buddy(rq, ent);
        self.update_curr(k, cpu);
        if self.cfs().is_some() {
            return self.cfs_yield(ent);
        }
        if self.eligible(rq, ent) {
            let e = self.ent_mut(ent);
            e.vruntime = e.deadline;
            self.update_deadline(rq, ent);
        }
    }
}
