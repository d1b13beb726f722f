//! Who runs next: the boundary between the machine and its scheduling classes.
//!
//! The machine ([`crate::machine`]) owns CPUs, tasks, time and the one switch from task to
//! task; a class owns its queues. Real-time tasks (`fifo`) go above every
//! class and are the machine's own. What the machine asks of a class:
//!
//! - `add_group`, `add_task`: before anything else names them.
//! - `select_wake`, `select_new`: where a task that wakes or is new should go. Must be allowed.
//! - `enqueue` / `dequeue`: the task becomes runnable on a CPU, or leaves. The
//!   class keeps [`Kernel::list_add`]/[`Kernel::list_del`] and the counts of
//!   [`crate::kernel::Cpu`] (`nr_queued`, `nr_runnable`, `nr_idle`) right. A
//!   running task that sleeps is dequeued while it still runs; `switch` follows
//!   at the same instant.
//! - `check_preempt`: a task has been queued on a CPU that runs another of the
//!   class; the class calls [`Kernel::resched`] if that is to give way.
//! - `pick`: whose turn it is, with the running one among the candidates if it
//!   is still queued; `None` if there is none. Changes nothing but what time
//!   has brought about (charges, throttling).
//! - `switch`: `pick`'s answer takes effect: `prev` and `next` are the class's
//!   own tasks or `None` (idle, or real-time).
//! - `update_curr`: [`Kernel::charge`] and what the class charges for it.
//! - `tick`: every `tick_ns` on a CPU that runs one of its tasks.
//! - `timer`, `period`, `slack`: timers that it set through
//!   [`crate::event::EventQueue::set_timer`].
//! - the setters: a file of a group was written; values are in [`Kernel::groups`] already.
//!
//! A class may call [`Kernel::resched`] at any time: the CPU chooses again
//! before time goes on. It never moves the clock and never runs programs.

pub(crate) mod balance;
pub(crate) mod ext;
pub(crate) mod fair;
pub(crate) mod fifo;
pub(crate) mod place;

use crate::config::Scheduler;
use crate::error::SimError;
use crate::ids::{CpuId, GroupId, TaskId};
use crate::kernel::Kernel;
use crate::spec::Policy;
use crate::trace::Event;
use ext::Ext;
pub(crate) use fair::{Dequeue, Enqueue};
use fair::{Fair, Flavour};
use place::Waker;

/// The class that ordinary tasks are in. There is one of it, so a box for each would only cost a step at every call.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Sched {
    Fair(Fair),
    Ext(Ext),
}

impl Sched {
    pub(crate) fn new(k: &Kernel) -> Result<Sched, SimError> {
        match &k.cfg.scheduler {
            Scheduler::Eevdf(config) => {
                Ok(Sched::Fair(Fair::new(Flavour::Eevdf(config.clone()), k)))
            }
            Scheduler::Cfs(config) => Ok(Sched::Fair(Fair::new(Flavour::Cfs(config.clone()), k))),
            Scheduler::Ext(config) => Ok(Sched::Ext(Ext::new(config.clone(), k))),
        }
    }

    fn fair(&self) -> &Fair {
        match self {
            Sched::Fair(fair) => fair,
            Sched::Ext(_) => unreachable!("only a class that balances is asked for its balance"),
        }
    }

    fn fair_mut(&mut self) -> &mut Fair {
        match self {
            Sched::Fair(fair) => fair,
            Sched::Ext(_) => unreachable!("only a class that balances is asked for its balance"),
        }
    }

    pub(crate) fn add_group(&mut self, k: &mut Kernel, group: GroupId) {
        match self {
            Sched::Fair(fair) => {
                fair.add_group(k, group);
                if group != GroupId::ROOT {
                    fair.set_shares(k, group);
                    if k.groups[group.index()].bandwidth.quota_us.is_some() {
                        fair.set_bandwidth(k, group);
                    }
                }
            }
            Sched::Ext(ext) => ext.add_group(k, group),
        }
    }

    pub(crate) fn add_task(&mut self, k: &mut Kernel, task: TaskId) {
        match self {
            Sched::Fair(fair) => fair.add_task(k, task),
            Sched::Ext(ext) => ext.add_task(k, task),
        }
    }

    pub(crate) fn select_wake(&mut self, k: &Kernel, task: TaskId, waker: Waker) -> CpuId {
        match self {
            Sched::Fair(fair) => fair.select_wake(k, task, waker),
            Sched::Ext(ext) => ext.select_wake(k, task, waker),
        }
    }

    pub(crate) fn select_new(&mut self, k: &Kernel, task: TaskId, parent: CpuId) -> CpuId {
        match self {
            Sched::Fair(fair) => fair.select_new(k, task, parent),
            Sched::Ext(ext) => ext.select_cpu(k, task, parent),
        }
    }

    /// A CPU has begun to idle, or has stopped.
    pub(crate) fn idle_changed(&mut self, k: &mut Kernel, cpu: CpuId, idle: bool) {
        match self {
            Sched::Fair(fair) if idle => {
                fair.placement.became_idle(k, cpu);
                fair.balance.begins_idle(k, cpu);
            }
            Sched::Fair(fair) => {
                fair.balance
                    .left_idle(cpu, k.now - k.cpus[cpu.index()].idle_since);
            }
            Sched::Ext(_) => {}
        }
    }

    /// Whether a group that the task is in is throttled on its CPU.
    pub(crate) fn throttled(&self, k: &Kernel, task: TaskId) -> bool {
        match self {
            Sched::Fair(fair) => fair
                .order
                .throttled_above(fair.order.ents[k.task(task).ent as usize].rq),
            Sched::Ext(ext) => ext.is_held(task),
        }
    }

    /// Whether the machine's balancing moves tasks from CPU to CPU; a class with shared queues does without.
    pub(crate) fn balances(&self) -> bool {
        matches!(self, Sched::Fair(_))
    }

    /// Whether a queued task may be moved: it wants to run and is not throttled; nor, under ext, is it side or background work.
    pub(crate) fn movable(&self, k: &Kernel, task: TaskId) -> bool {
        match self {
            Sched::Fair(fair) => fair.movable(k, task),
            Sched::Ext(ext) => ext.waits(task),
        }
    }

    /// Whether a group that the task is in is throttled on another CPU: the kernel moves nothing there (throttled_lb_pair).
    pub(crate) fn throttled_on(&self, k: &Kernel, task: TaskId, cpu: CpuId) -> bool {
        match self {
            Sched::Fair(fair) => fair
                .order
                .throttled_above(fair.order.rq_of(k.task(task).group, cpu)),
            Sched::Ext(_) => false,
        }
    }

    pub(crate) fn enqueue(&mut self, k: &mut Kernel, cpu: CpuId, task: TaskId, why: Enqueue) {
        match self {
            Sched::Fair(fair) => fair.enqueue(k, cpu, task, why),
            Sched::Ext(ext) => ext.enqueue(k, cpu, task, why),
        }
    }

    pub(crate) fn dequeue(&mut self, k: &mut Kernel, cpu: CpuId, task: TaskId, why: Dequeue) {
        match self {
            Sched::Fair(fair) => {
                fair.dequeue(k, cpu, task, why);
            }
            Sched::Ext(ext) => ext.dequeue(k, cpu, task, why),
        }
    }

    /// A class that keeps sleepers queued takes this one back up where it is.
    pub(crate) fn wake_in_place(&mut self, k: &mut Kernel, task: TaskId) -> bool {
        match self {
            Sched::Fair(fair) => {
                let delayed = fair.is_delayed(k, task);
                if delayed {
                    let cpu = k.task(task).cpu;
                    fair.wake_delayed(k, cpu, task);
                }
                delayed
            }
            Sched::Ext(_) => false,
        }
    }

    /// A sleeper that the class keeps queued leaves at once: it is about to change
    /// its group or CPU.
    pub(crate) fn forget_sleeper(&mut self, k: &mut Kernel, task: TaskId) {
        match self {
            Sched::Fair(fair) => {
                if fair.is_delayed(k, task) {
                    let cpu = k.task(task).cpu;
                    fair.dequeue(k, cpu, task, Dequeue::Move);
                }
            }
            Sched::Ext(_) => {}
        }
    }

    pub(crate) fn check_preempt(&mut self, k: &mut Kernel, cpu: CpuId, new: TaskId, curr: TaskId) {
        match self {
            Sched::Fair(fair) => fair.check_preempt(k, cpu, new, curr),
            Sched::Ext(ext) => ext.check_preempt(k, new),
        }
    }

    pub(crate) fn pick(&mut self, k: &mut Kernel, cpu: CpuId) -> Option<TaskId> {
        match self {
            Sched::Fair(fair) => fair.pick(k, cpu),
            Sched::Ext(ext) => ext.pick(k, cpu),
        }
    }

    pub(crate) fn switch(
        &mut self,
        k: &mut Kernel,
        cpu: CpuId,
        prev: Option<TaskId>,
        next: Option<TaskId>,
    ) {
        match self {
            Sched::Fair(fair) => fair.switch(k, cpu, prev, next),
            Sched::Ext(ext) => ext.switch(k, cpu, next),
        }
    }

    pub(crate) fn update_curr(&mut self, k: &mut Kernel, cpu: CpuId) {
        match self {
            Sched::Fair(fair) => fair.update_curr(k, cpu),
            Sched::Ext(ext) => ext.update_curr(k, cpu),
        }
    }

    pub(crate) fn tick(&mut self, k: &mut Kernel, cpu: CpuId, task: TaskId) {
        match self {
            Sched::Fair(fair) => fair.tick(k, cpu, task),
            Sched::Ext(ext) => ext.tick(k, cpu),
        }
    }

    pub(crate) fn yield_now(&mut self, k: &mut Kernel, cpu: CpuId, task: TaskId) {
        match self {
            Sched::Fair(fair) => fair.yield_now(k, cpu, task),
            Sched::Ext(ext) => ext.yield_now(k, cpu),
        }
    }

    pub(crate) fn period(&mut self, k: &mut Kernel, group: GroupId) {
        match self {
            Sched::Fair(fair) => fair.period(k, group),
            Sched::Ext(_) => {}
        }
    }

    pub(crate) fn slack(&mut self, k: &mut Kernel, group: GroupId) {
        match self {
            Sched::Fair(fair) => fair.slack(k, group),
            Sched::Ext(_) => {}
        }
    }

    pub(crate) fn timer(&mut self, k: &mut Kernel, number: u64) {
        match self {
            Sched::Fair(_) => {}
            Sched::Ext(ext) => ext.timer(k, number),
        }
    }

    pub(crate) fn set_bandwidth(&mut self, k: &mut Kernel, group: GroupId) {
        match self {
            Sched::Fair(fair) => fair.set_bandwidth(k, group),
            Sched::Ext(ext) => ext.set_bandwidth(k, group),
        }
    }

    /// cpu.weight or cpu.idle.
    pub(crate) fn set_shares(&mut self, k: &mut Kernel, group: GroupId) {
        match self {
            Sched::Fair(fair) => fair.set_shares(k, group),
            Sched::Ext(ext) => ext.set_shares(k, group),
        }
    }

    /// A task that is not queued has another group.
    pub(crate) fn group_changed(&mut self, k: &mut Kernel, task: TaskId) {
        match self {
            Sched::Fair(_) => {}
            Sched::Ext(ext) => ext.change_group(k, task),
        }
    }

    /// What the class's own headroom law decided last.
    pub(crate) fn headroom(&self) -> Option<&tidegate_law::HeadroomDecision> {
        match self {
            Sched::Fair(_) => None,
            Sched::Ext(ext) => ext.headroom(),
        }
    }

    /// A task's slice, nice level or latency hint.
    pub(crate) fn set_task(&mut self, k: &mut Kernel, task: TaskId) {
        match self {
            Sched::Fair(fair) => fair.set_task(k, task),
            Sched::Ext(ext) => ext.set_task(k, task),
        }
    }

    /// Whether the class's own books agree; the first disagreement in words.
    pub(crate) fn verify(&self, k: &Kernel) -> Result<(), String> {
        match self {
            Sched::Fair(fair) => fair::verify(fair, k),
            Sched::Ext(ext) => ext::verify(ext, k),
        }
    }

    /// When a limited group's period ends, where that is lazy and no timer tells of it ([`crate::event::Timer::Period`]).
    pub(crate) fn lazy_turnover_ns(&self, group: GroupId) -> Option<crate::Ns> {
        match self {
            Sched::Fair(_) => None,
            Sched::Ext(ext) => ext.turnover_ns(group),
        }
    }

    pub(crate) fn bandwidth_stat(&self, group: GroupId) -> BandwidthStat {
        match self {
            Sched::Fair(fair) => {
                let stat = fair.tgs[group.index()].pool.stat();
                BandwidthStat {
                    nr_periods: stat.nr_periods,
                    nr_throttled: stat.nr_throttled,
                    throttled_ns: stat.throttled_ns,
                    nr_bursts: stat.nr_bursts,
                    burst_ns: stat.burst_ns,
                }
            }
            Sched::Ext(ext) => ext.bandwidth_stat(group),
        }
    }
}

/// A group's cpu.stat, with the kernel's meaning: `throttled_ns` adds up over
/// CPUs and counts a CPU's time when it is let go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BandwidthStat {
    /// Periods that ended while anything ran.
    pub nr_periods: u64,
    /// Of those, periods at whose end some CPU was throttled.
    pub nr_throttled: u64,
    /// Time throttled, summed over CPUs.
    pub throttled_ns: u64,
    /// Periods that used more than one quota.
    pub nr_bursts: u64,
    /// What they used above it.
    pub burst_ns: u64,
}

/// Moves a runnable task that does not run to another CPU.
pub(crate) fn migrate(k: &mut Kernel, sched: &mut Sched, task: TaskId, to: CpuId) {
    let from = k.task(task).cpu;
    debug_assert_ne!(
        k.cpus[from.index()].curr,
        Some(task),
        "a running task is put first"
    );
    sched.dequeue(k, from, task, Dequeue::Move);
    k.trace(Event::Migrate { task, from, to });
    let cost = k.cfg.costs.migrate_ns;
    let t = k.task_mut(task);
    t.cpu = to;
    t.overhead_ns += cost;
    sched.enqueue(k, to, task, Enqueue::Move);
    preempt(k, sched, to, task);
}

/// A task has been queued on a CPU: is it to run at once?
pub(crate) fn preempt(k: &mut Kernel, sched: &mut Sched, cpu: CpuId, new: TaskId) {
    match k.cpus[cpu.index()].curr {
        None => k.resched(cpu),
        Some(curr) => match (k.task(new).policy, k.task(curr).policy) {
            (Policy::Fifo { prio: new }, Policy::Fifo { prio: curr }) if new <= curr => {}
            (Policy::Fifo { .. }, _) => k.resched(cpu),
            (_, Policy::Fifo { .. }) => {}
            _ => sched.check_preempt(k, cpu, new, curr),
        },
    }
}
