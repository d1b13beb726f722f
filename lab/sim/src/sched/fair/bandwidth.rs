//! cpu.max on the fair class: the arithmetic is `law/bandwidth.h` in the
//! kernel's mode; here is when it is asked, and what throttling does to queues.
//!
//! A CPU's silo is charged whenever the running task is (at ticks and switches: that granularity is
//! the law's). As in kernel 6.18 each task stops by itself: a queue that is out of quota stays
//! where it is; a task that is picked below it stops on its way to user space, leaves its queue,
//! and waits in that queue's list, until the period timer or the slack timer brings it back. So
//! groups and tasks below a limit lose what they are owed whenever it strikes: the last to stop has
//! no lag left, and the first that comes back finds an empty queue (measured on 6.18: weights 100
//! and 300 under 7 ms per 10 ms get 38 and 31 % of a CPU).

use super::{Fair, queue::Leave};
use crate::event::Timer;
use crate::ids::{CpuId, GroupId, TaskId};
use crate::kernel::{Kernel, NONE};
use crate::spec::{Bandwidth, CpuStat};
use tidegate_law::bandwidth::{NONE as UNLIMITED, SLACK_WAIT_NS, Terms, Verdict};

impl Fair {
    fn terms(&self, bandwidth: &Bandwidth) -> Terms {
        Terms {
            quota_ns: bandwidth.quota_us.map_or(UNLIMITED, |us| us * 1000),
            period_ns: bandwidth.period_us * 1000,
            burst_ns: bandwidth.burst_us * 1000,
            slice_ns: self.slice_ns,
        }
    }

    /// Sets the period timer if the pool's timer runs and none is set.
    fn arm_period(&mut self, k: &mut Kernel, group: u32) {
        let tg = &mut self.tgs[group as usize];
        if !tg.period_armed && tg.pool.active() {
            tg.period_armed = true;
            let at = tg.pool.turnover_ns().max(k.now);
            k.events.set_timer(at, Timer::Period(GroupId(group)));
        }
    }

    /// Charges a limited queue; if it is out, its CPU chooses again.
    pub(super) fn account_runtime(&mut self, k: &mut Kernel, rq: u32, delta: u64) {
        let q = &mut self.order.rqs[rq as usize];
        let tg = &mut self.tgs[q.group as usize];
        if tg.pool.charge(&mut q.silo, delta) {
            return;
        }
        let out = !q.throttled && tg.pool.run(&mut q.silo, 0, k.now) == Verdict::Out;
        let (group, cpu, running) = (q.group, CpuId(q.cpu), q.curr != NONE);
        self.arm_period(k, group);
        if out && running {
            k.resched(cpu);
        }
    }

    /// A group that wakes up on a CPU must not run on quota that is gone.
    pub(super) fn check_enqueue_throttle(&mut self, k: &mut Kernel, rq: u32) {
        let q = self.order.rq(rq);
        // A group that runs is looked at when it is charged and put.
        if q.curr != NONE || q.throttled {
            return;
        }
        self.account_runtime(k, rq, 0);
        if self.order.rq(rq).silo.remaining_ns() <= 0 {
            self.throttle(k, rq);
        }
    }

    /// Throttles a limited queue that is out; true if it is throttled.
    pub(super) fn check_runtime(&mut self, k: &mut Kernel, rq: u32) -> bool {
        let q = self.order.rq(rq);
        if q.silo.remaining_ns() > 0 {
            return false;
        }
        q.throttled || self.throttle(k, rq)
    }

    fn throttle(&mut self, k: &mut Kernel, rq: u32) -> bool {
        let q = &mut self.order.rqs[rq as usize];
        let (group, cpu) = (q.group, CpuId(q.cpu));
        let stopped = self.tgs[group as usize].pool.throttle(&mut q.silo, k.now);
        self.arm_period(k, group);
        if !stopped {
            return false;
        }
        self.tgs[group as usize].throttled.push_back(cpu.0);
        self.order.rq_mut(rq).throttled = true;
        self.publish(k, cpu);
        true
    }

    /// Brings a queue back whose silo may run again.
    fn unthrottle(&mut self, k: &mut Kernel, rq: u32) {
        let q = self.order.rq_mut(rq);
        q.throttled = false;
        let cpu = CpuId(q.cpu);
        self.update_curr(k, cpu);
        self.release(k, rq);
        self.publish(k, cpu);
        if k.cpus[cpu.index()].curr.is_none() && self.order.root_of(cpu).nr > 0 {
            k.resched(cpu);
        }
    }

    /// Pays debts of throttled CPUs, longest throttled first, while the pool lasts.
    fn distribute(&mut self, k: &mut Kernel, group: u32) {
        for _ in 0..self.tgs[group as usize].throttled.len() {
            let tg = &mut self.tgs[group as usize];
            let Some(cpu) = tg.throttled.pop_front() else {
                return;
            };
            let rq = self.order.rq_of(GroupId(group), CpuId(cpu));
            let q = &mut self.order.rqs[rq as usize];
            let tg = &mut self.tgs[group as usize];
            if tg.pool.runtime_ns() > 0 && tg.pool.distribute(&mut q.silo, k.now) {
                self.unthrottle(k, rq);
            } else {
                // It keeps its place: the rotation is complete at the loop's end.
                self.tgs[group as usize].throttled.push_back(cpu);
            }
        }
    }

    pub(crate) fn period(&mut self, k: &mut Kernel, group: GroupId) {
        let tg = &mut self.tgs[group.index()];
        tg.period_armed = false;
        if tg.pool.turnover(k.now) > 0 {
            self.distribute(k, group.0);
        }
        self.arm_period(k, group.0);
    }

    /// The last entity left a limited queue: all but 1 ms goes back.
    pub(super) fn return_runtime(&mut self, k: &mut Kernel, rq: u32) {
        let q = &mut self.order.rqs[rq as usize];
        let group = q.group;
        let tg = &mut self.tgs[group as usize];
        let back = tg.pool.give_back(&mut q.silo);
        if back > 0 && !tg.slack_armed && tg.pool.slack_wanted(k.now) {
            tg.slack_armed = true;
            k.events
                .set_timer(k.now + SLACK_WAIT_NS, Timer::Slack(GroupId(group)));
        }
    }

    /// The slack timer: what came back goes to throttled CPUs.
    pub(crate) fn slack(&mut self, k: &mut Kernel, group: GroupId) {
        let tg = &mut self.tgs[group.index()];
        tg.slack_armed = false;
        if tg.pool.slack_due(k.now) {
            self.distribute(k, group.0);
        }
    }

    /// cpu.max was written: a refill, debts forgiven, throttled CPUs let go;
    /// the next charge on each CPU is the first to count.
    pub(crate) fn set_bandwidth(&mut self, k: &mut Kernel, group: GroupId) {
        let terms = self.terms(&k.groups[group.index()].bandwidth);
        let tg = &mut self.tgs[group.index()];
        tg.pool.set_kernel(&terms, k.now);
        tg.throttled.clear();
        let limited = tg.pool.is_limited();
        self.arm_period(k, group.0);
        for cpu in 0..self.order.ncpu {
            let rq = self.order.rq_of(group, CpuId(cpu));
            let q = &mut self.order.rqs[rq as usize];
            q.limited = limited;
            self.tgs[group.index()].pool.forgive(&mut q.silo, k.now);
            if q.throttled {
                self.unthrottle(k, rq);
            }
        }
    }

    /// A task that was picked below a throttled queue leaves its own.
    pub(super) fn stop_task(&mut self, k: &mut Kernel, cpu: CpuId, task: TaskId) {
        let ent = k.task(task).ent;
        let rq = self.order.ent(ent).rq;
        let idle = i32::from(self.order.ent(ent).idle);
        // It stays on the CPU's list of tasks, as the throttled always do.
        self.dequeue_up(k, ent, Leave::STOPPED);
        self.order.count(rq, -1, -1, -idle);
        self.order.ent_mut(ent).stopped = true;
        self.order.rq_mut(rq).stopped.push(ent);
        self.publish(k, cpu);
    }

    /// Takes a stopped task that is to move out of its queue's list; false if it is not stopped.
    pub(super) fn forget_stopped(&mut self, ent: u32) -> bool {
        if !std::mem::take(&mut self.order.ent_mut(ent).stopped) {
            return false;
        }
        let rq = self.order.ent(ent).rq;
        self.order.rq_mut(rq).stopped.retain(|&other| other != ent);
        true
    }

    /// Queues again what stopped below a queue that may run, as far as nothing else holds it: from
    /// the top, the newest group and the last stopped first, as the kernel's lists have them.
    pub(super) fn release(&mut self, k: &mut Kernel, rq: u32) {
        let mut tasks = Vec::new();
        if !self.order.throttled_above(rq) {
            self.collect_stopped(rq, &mut tasks);
        }
        let cpu = CpuId(self.order.rq(rq).cpu);
        for task in tasks {
            self.enqueue_listed(k, cpu, task, false);
        }
    }

    fn collect_stopped(&mut self, rq: u32, into: &mut Vec<TaskId>) {
        if self.order.rq(rq).throttled {
            return;
        }
        let q = self.order.rq_mut(rq);
        let (group, cpu) = (q.group, q.cpu);
        for ent in std::mem::take(&mut q.stopped).into_iter().rev() {
            let e = self.order.ent_mut(ent);
            e.stopped = false;
            debug_assert_ne!(e.task, NONE, "only tasks stop");
            into.push(TaskId(e.task));
        }
        for at in (0..self.tgs[group as usize].children.len()).rev() {
            let child = self.tgs[group as usize].children[at];
            self.collect_stopped(child * self.order.ncpu + cpu, into);
        }
    }

    /// Whether a queued task may be moved: it wants to run and is not throttled.
    pub(crate) fn movable(&self, k: &Kernel, task: TaskId) -> bool {
        let e = self.order.ent(k.task(task).ent);
        e.on_rq && !e.delayed && !self.order.throttled_above(e.rq)
    }

    /// Whether a group that the task is in is throttled on its CPU.
    pub(crate) fn throttled(&self, k: &Kernel, task: TaskId) -> bool {
        let ent = k.task(task).ent;
        self.order.throttled_above(self.order.ent(ent).rq)
    }

    /// Whether a group that the task is in is throttled on another CPU: the kernel moves nothing
    /// there (throttled_lb_pair).
    pub(crate) fn throttled_on(&self, k: &Kernel, task: TaskId, cpu: CpuId) -> bool {
        self.order
            .throttled_above(self.order.rq_of(k.task(task).group, cpu))
    }

    pub(crate) fn cpu_stat(&self, group: GroupId) -> CpuStat {
        let stat = self.tgs[group.index()].pool.stat();
        CpuStat {
            nr_periods: stat.nr_periods,
            nr_throttled: stat.nr_throttled,
            throttled_ns: stat.throttled_ns,
            nr_bursts: stat.nr_bursts,
            burst_ns: stat.burst_ns,
        }
    }
}
