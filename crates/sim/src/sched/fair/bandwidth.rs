//! cpu.max on the fair class: the arithmetic is `law/bandwidth.h` in the
//! kernel's mode; here is when it is asked, and what throttling does to queues.
//!
//! As in kernel 6.12: a CPU's silo is charged whenever the running task is (at
//! ticks and switches: that granularity is the law's), a group that is out is
//! taken off the CPU at the next choice, its entity leaves its parent's queue,
//! and the period timer or the slack timer brings it back. From 6.18 on
//! each task stops by itself instead: see [`super::stop`].

use super::{Enqueue, Fair, queue::Leave};
use crate::event::Timer;
use crate::ids::{CpuId, GroupId};
use crate::kernel::{Kernel, NONE};
use crate::spec::Bandwidth;
use crate::trace::Event;
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
        let q = &mut self.rqs[rq as usize];
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
        let q = self.rq(rq);
        // A group that runs is looked at when it is charged and put.
        if q.curr != NONE || q.throttled {
            return;
        }
        self.account_runtime(k, rq, 0);
        if self.rq(rq).silo.remaining_ns() <= 0 {
            self.throttle(k, rq);
        }
    }

    /// Throttles a limited queue that is out; true if it is throttled.
    pub(super) fn check_runtime(&mut self, k: &mut Kernel, rq: u32) -> bool {
        let q = self.rq(rq);
        if q.silo.remaining_ns() > 0 {
            return false;
        }
        q.throttled || self.throttle(k, rq)
    }

    fn throttle(&mut self, k: &mut Kernel, rq: u32) -> bool {
        let q = &mut self.rqs[rq as usize];
        let (group, cpu, ent) = (q.group, CpuId(q.cpu), q.ent);
        let stopped = self.tgs[group as usize].pool.throttle(&mut q.silo, k.now);
        self.arm_period(k, group);
        if !stopped {
            return false;
        }
        self.tgs[group as usize].throttled.push_back(cpu.0);
        if !self.throttle_tasks {
            self.count_above(rq, -1);
        }
        self.rq_mut(rq).throttled = true;
        if !self.throttle_tasks {
            self.detach(k, ent);
        }
        self.publish(k, cpu);
        k.trace(Event::Throttle {
            group: GroupId(group),
            cpu,
        });
        true
    }

    /// Takes a throttled group's entity, and those above that it leaves empty, off their queues.
    fn detach(&mut self, k: &mut Kernel, mut ent: u32) {
        while ent != NONE && self.ent(ent).on_rq {
            let above = self.ent(ent).rq;
            let delayed = self.ent(ent).delayed;
            // At once, whatever it owes: its lag is kept for its return.
            self.dequeue_entity(
                k,
                above,
                ent,
                Leave {
                    special: true,
                    delayed,
                    ..Leave::SLEEP
                },
            );
            ent = self.rq(above).ent;
            if self.rq(above).nr > 0 {
                self.refresh_up(k, ent, self.min_slice(above));
                break;
            }
        }
    }

    /// Brings a queue back whose silo may run again.
    fn unthrottle(&mut self, k: &mut Kernel, rq: u32) {
        let (group, cpu, ent) = {
            let q = self.rq_mut(rq);
            q.throttled = false;
            (q.group, CpuId(q.cpu), q.ent)
        };
        k.trace(Event::Unthrottle {
            group: GroupId(group),
            cpu,
        });
        self.update_curr(k, cpu);
        if self.throttle_tasks {
            self.release(k, rq);
        } else {
            self.count_above(rq, 1);
        }
        if !self.throttle_tasks && self.rq(rq).load > 0 {
            if self.ent(ent).on_rq && self.ent(ent).delayed {
                self.finish_delayed(k, ent);
            }
            self.enqueue_up(k, ent, Enqueue::Wakeup);
        }
        self.publish(k, cpu);
        if k.cpus[cpu.index()].curr.is_none() && self.root_of(cpu).nr > 0 {
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
            let rq = self.rq_of(GroupId(group), CpuId(cpu));
            let q = &mut self.rqs[rq as usize];
            let tg = &mut self.tgs[group as usize];
            if tg.pool.runtime_ns() > 0 && tg.pool.distribute(&mut q.silo, k.now) {
                self.unthrottle(k, rq);
            } else {
                // It keeps its place: the rotation is complete at the loop's end.
                self.tgs[group as usize].throttled.push_back(cpu);
            }
        }
    }

    /// The period timer.
    pub(crate) fn period(&mut self, k: &mut Kernel, group: GroupId) {
        let tg = &mut self.tgs[group.index()];
        tg.period_armed = false;
        if tg.pool.turnover(k.now) > 0 {
            let runtime_ns = tg.pool.runtime_ns() as i64;
            k.trace(Event::Refill { group, runtime_ns });
            self.distribute(k, group.0);
        }
        self.arm_period(k, group.0);
    }

    /// The last entity left a limited queue: all but 1 ms goes back.
    pub(super) fn return_runtime(&mut self, k: &mut Kernel, rq: u32) {
        let q = &mut self.rqs[rq as usize];
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
        for cpu in 0..self.ncpu {
            let rq = self.rq_of(group, CpuId(cpu));
            let q = &mut self.rqs[rq as usize];
            q.limited = limited;
            self.tgs[group.index()].pool.forgive(&mut q.silo, k.now);
            if q.throttled {
                self.unthrottle(k, rq);
            }
        }
    }
}
