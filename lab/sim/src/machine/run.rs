//! The loop over events, and the one place where a CPU turns to another task.

use super::Machine;
use crate::Ns;
use crate::error::Violation;
use crate::event::{NEVER, Next, Timer};
use crate::ids::{CpuId, TaskId};
use crate::kernel::TaskState;
use crate::sched::{balance, migrate, place::Waker, verify};

/// The class's sums cost O(all) to check: now and then.
const CHECK_EVERY: u64 = 1024;

impl Machine {
    /// Runs to a time, that instant included.
    pub fn run_until(&mut self, t_ns: Ns) -> Result<(), Violation> {
        loop {
            // What changed since (here or from outside) takes effect first.
            self.settle();
            if let Some(checker) = &mut self.checker {
                checker.look(&mut self.k, &self.sched);
                if self.k.handled.is_multiple_of(CHECK_EVERY) {
                    self.check_sums();
                }
            }
            if let Some(violation) = &self.k.violation {
                return Err(violation.clone());
            }
            let Some((at, next)) = self.k.events.pop(t_ns) else {
                break;
            };
            debug_assert!(at >= self.k.now, "time goes forward");
            self.k.now = at;
            self.k.handled += 1;
            match next {
                Next::End(cpu) => {
                    self.k.advance_work(cpu);
                    self.go_on(cpu);
                }
                Next::Tick(cpu) => self.tick(cpu),
                Next::Timer(Timer::Wake(task)) => self.timer_wake(task),
                Next::Timer(Timer::Period(group)) => {
                    if let Some(checker) = &mut self.checker {
                        checker.turns_over(&mut self.k, group);
                    }
                    self.sched.period(&mut self.k, group);
                }
                Next::Timer(Timer::Slack(group)) => self.sched.slack(&mut self.k, group),
            }
        }
        self.k.now = self.k.now.max(t_ns);
        if let Some(checker) = &mut self.checker {
            checker.compare(&mut self.k);
            self.check_sums();
        }
        self.k.violation.clone().map_or(Ok(()), Err)
    }
}

impl Machine {
    /// Lets every CPU that must do so choose again.
    pub(super) fn settle(&mut self) {
        while self.k.any_resched {
            let Some(cpu) = self.k.resched.first() else {
                self.k.any_resched = false;
                return;
            };
            self.schedule(cpu);
            self.go_on(cpu);
        }
    }

    /// The class's own sums, counted again.
    fn check_sums(&mut self) {
        if let Err(why) = verify(&self.sched, &self.k) {
            self.k.violate("books", None, None, why);
        }
    }

    fn timer_wake(&mut self, task: TaskId) {
        if self.k.task(task).state == TaskState::New {
            self.start(task, None);
            return;
        }
        // The interrupt is taken by the task that runs where the timer was set.
        let cpu = self.k.task(task).cpu;
        self.k.interrupt(cpu, self.k.cfg.costs.wakeup_ns);
        self.wake(task, Waker::Timer);
    }

    fn tick(&mut self, cpu: CpuId) {
        let tick_ns = self.k.cfg.tick_ns;
        self.k.events.set_tick(cpu, self.k.now + tick_ns);
        // So that what readers see of work done is never older than a tick.
        self.k.advance_work(cpu);
        self.k.interrupt(cpu, self.k.cfg.costs.tick_ns);
        self.k.refresh_speed(cpu);
        if let Some(task) = self.k.cpus[cpu.index()].curr {
            self.sched.tick(&mut self.k, cpu, task);
        }
        balance::periodic(&mut self.k, &mut self.sched, cpu);
    }

    /// Chooses again on a CPU, and turns to the choice.
    pub(super) fn schedule(&mut self, cpu: CpuId) {
        if let Some(to) = self.k.cpus[cpu.index()].push_to.take() {
            self.push(cpu, to);
        }
        self.k.resched.remove(cpu);
        self.k.advance_work(cpu);
        self.sched.update_curr(&mut self.k, cpu);
        let prev = self.k.cpus[cpu.index()].curr;
        let next = self.choose(cpu);
        // The class may have asked again while it chose; that choice is this one.
        self.k.resched.remove(cpu);
        if next != prev {
            self.turn(cpu, prev, next);
        }
    }

    fn choose(&mut self, cpu: CpuId) -> Option<TaskId> {
        if let Some(task) = self.sched.pick(&mut self.k, cpu) {
            return Some(task);
        }
        if balance::newidle(&mut self.k, &mut self.sched, cpu) {
            return self.sched.pick(&mut self.k, cpu);
        }
        None
    }

    fn turn(&mut self, cpu: CpuId, prev: Option<TaskId>, next: Option<TaskId>) {
        let k = &mut self.k;
        self.sched.switch(k, cpu, prev, next);
        if let Some(task) = prev {
            let now = k.now;
            let t = k.task_mut(task);
            t.last_ran_ns = now;
            t.queued_ns = now;
        }
        let costs = k.cfg.costs;
        let c = &mut k.cpus[cpu.index()];
        c.curr = next;
        c.charged_to = k.now;
        c.worked_to = k.now;
        c.carry_ppm = 0;
        if let Some(task) = next {
            k.end_delay(task);
            k.end_wakeup(task);
            let exit = if prev.is_none() {
                costs.idle_exit_ns
            } else {
                0
            };
            k.task_mut(task).overhead_ns += costs.switch_ns + exit;
        }
        if prev.is_some() != next.is_some() {
            if next.is_some() {
                self.sched.idle_changed(k, cpu, false);
            }
            k.set_busy(cpu, next.is_some());
            if next.is_none() {
                self.sched.idle_changed(k, cpu, true);
            }
            let tick_ns = k.cfg.tick_ns;
            let at = if next.is_some() {
                (k.now / tick_ns + 1) * tick_ns
            } else {
                NEVER
            };
            k.events.set_tick(cpu, at);
        }
        balance::note_tasks(k, cpu);
        k.refresh_speed(cpu);
        if let Some(checker) = &mut self.checker {
            let throttled = next.is_some_and(|task| self.sched.throttled(k, task));
            checker.switched(k, cpu, prev, next, throttled);
        }
    }

    /// Moves the running task to another CPU (active balance), if that still can be.
    fn push(&mut self, cpu: CpuId, to: CpuId) {
        let Some(task) = self.k.cpus[cpu.index()].curr else {
            return;
        };
        let runs_on = self.k.task(task).state == TaskState::Runnable;
        if runs_on && self.k.allowed(task, to) {
            self.vacate(cpu);
            if self.sched.movable(&self.k, task) {
                migrate(&mut self.k, &mut self.sched, task, to);
            }
        }
    }

    /// Takes the running task off a CPU, without choosing another.
    pub(super) fn vacate(&mut self, cpu: CpuId) {
        self.k.advance_work(cpu);
        self.sched.update_curr(&mut self.k, cpu);
        if let Some(prev) = self.k.cpus[cpu.index()].curr {
            self.k.resched(cpu);
            self.turn(cpu, Some(prev), None);
            self.k.arm_end(cpu);
        }
    }
}
