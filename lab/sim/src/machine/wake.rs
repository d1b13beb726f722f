//! Tasks that start, wake, sleep and end.

use super::Machine;
use crate::event::Timer;
use crate::ids::{CpuId, GroupId, TaskId};
use crate::kernel::TaskState;
use crate::program::TaskSpec;
use crate::sched::{Dequeue, place::Waker, preempt};
use crate::spec::Policy;

impl Machine {
    /// A new task enters its first queue.
    pub(super) fn start(&mut self, task: TaskId, parent: Option<CpuId>) {
        let k = &mut self.k;
        let from = parent.unwrap_or(k.task(task).cpu);
        let now = k.now;
        let t = k.task_mut(task);
        t.state = TaskState::Runnable;
        t.woken_ns = now;
        t.is_woken = true;
        t.queued_ns = now;
        let cpu = self.sched.select_new(k, task, from);
        k.task_mut(task).cpu = cpu;
        self.sched.enqueue(k, cpu, task, true);
        preempt(k, &mut self.sched, cpu, task);
    }

    /// A waiting task becomes runnable.
    pub(super) fn wake(&mut self, task: TaskId, waker: Waker) {
        let k = &mut self.k;
        let now = k.now;
        let t = k.task_mut(task);
        debug_assert_eq!(t.state, TaskState::Waiting, "only who waits is woken");
        t.state = TaskState::Runnable;
        t.woken_ns = now;
        t.is_woken = true;
        t.queued_ns = now;
        let cpu = if self.sched.wake_in_place(k, task) {
            k.task(task).cpu
        } else {
            let cpu = self.sched.select_wake(k, task, waker);
            let cost = k.cfg.costs.migrate_ns;
            let t = k.task_mut(task);
            if t.cpu != cpu {
                t.cpu = cpu;
                t.overhead_ns += cost;
            }
            self.sched.enqueue(k, cpu, task, false);
            cpu
        };
        preempt(k, &mut self.sched, cpu, task);
    }

    /// A task on a CPU wakes another, and pays for it.
    pub(super) fn wake_from(&mut self, cpu: CpuId, waker: TaskId, task: TaskId) {
        self.k.add_overhead(cpu, self.k.cfg.costs.wakeup_ns);
        self.wake(task, Waker::Task { task: waker, cpu });
    }

    /// The CPU's task begins to wait; the CPU turns to another at once.
    pub(super) fn block(&mut self, cpu: CpuId, task: TaskId) {
        self.k.task_mut(task).state = TaskState::Waiting;
        self.sched.dequeue(&mut self.k, cpu, task, Dequeue::Sleep);
        self.schedule(cpu);
    }

    /// The CPU's task ends.
    pub(super) fn exit(&mut self, cpu: CpuId, task: TaskId) {
        self.k.task_mut(task).state = TaskState::Exited;
        self.sched.dequeue(&mut self.k, cpu, task, Dequeue::Exit);
        self.k.cold[task.index()].program = None;
        self.schedule(cpu);
    }

    /// The CPU's task sleeps until a time.
    pub(super) fn sleep_until(&mut self, cpu: CpuId, task: TaskId, at_ns: u64) {
        if at_ns > self.k.now {
            self.k.events.set_timer(at_ns, Timer::Wake(task));
            self.block(cpu, task);
        }
    }

    /// The CPU's task creates another.
    pub(super) fn fork(&mut self, cpu: CpuId, parent: TaskId) {
        let Some(child) = self.k.cold[parent.index()].fork.take() else {
            return;
        };
        let start_ns = child.start_ns;
        let child = self.inherit(*child, parent);
        match self.create(child, Some(parent)) {
            Err(why) => self
                .k
                .violate("fork", Some(cpu), Some(parent), why.to_string()),
            Ok(task) => {
                self.k.add_overhead(cpu, self.k.cfg.costs.wakeup_ns);
                if start_ns > self.k.now {
                    self.k.events.set_timer(start_ns, Timer::Wake(task));
                } else {
                    self.start(task, Some(cpu));
                }
            }
        }
    }

    /// What fork hands on, where the child's spec leaves the default.
    fn inherit(&self, mut child: TaskSpec, parent: TaskId) -> TaskSpec {
        let (t, cold) = (self.k.task(parent), &self.k.cold[parent.index()]);
        if child.group == GroupId::ROOT {
            child.group = t.group;
        }
        if child.policy == Policy::Normal {
            child.policy = t.policy;
        }
        if child.nice == 0 {
            child.nice = t.nice;
        }
        child.slice_ns = child.slice_ns.or((t.slice_ns > 0).then_some(t.slice_ns));
        child.cpus = child.cpus.or(cold.asked);
        child
    }
}
