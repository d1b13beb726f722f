//! What programs do, op by op.
//!
//! An op that enters the kernel first takes its time (`Costs::op_ns`, as overhead
//! of the task), then has its effect. A task that was blocked on a pipe or a lock tries
//! again when it runs: another may have been quicker.

use super::Machine;
use crate::ids::{CpuId, PipeId, TaskId};
use crate::kernel::Pending;
use crate::program::{Ctx, Op};

/// So many ops in no time at all are a program that never ends one instant.
const SPIN_MAX: u32 = 1_000_000;

impl Machine {
    /// Lets the CPU's task go on with its program until it has something to
    /// run, or until another's turn has come.
    pub(super) fn go_on(&mut self, cpu: CpuId) {
        let mut spins = 0;
        while let Some(task) = self.k.cpus[cpu.index()].curr {
            let t = self.k.task(task);
            if t.overhead_ns > 0 || t.work_ns > 0 {
                break;
            }
            if self.k.needs_resched(cpu) {
                return;
            }
            spins += 1;
            if spins > SPIN_MAX {
                let detail = format!("{SPIN_MAX} ops at one instant: the program never runs");
                return self.k.violate("progress", Some(cpu), Some(task), detail);
            }
            match t.pending {
                Pending::Next => self.ask(task),
                pending => self.complete(cpu, task, pending),
            }
        }
        self.k.arm_end(cpu);
    }

    /// Asks the program for its next op.
    fn ask(&mut self, task: TaskId) {
        let cold = &mut self.k.cold[task.index()];
        let Some(mut program) = cold.program.take() else {
            return;
        };
        let mut ctx = Ctx {
            now_ns: self.k.now,
            rng: &mut cold.rng,
            series: &mut self.k.series,
        };
        let op = program.next(&mut ctx);
        cold.program = Some(program);
        let pending = match op {
            Op::Run { work_ns } => {
                self.k.task_mut(task).work_ns = work_ns;
                return;
            }
            Op::SleepUntil { at_ns } => Pending::SleepUntil(at_ns),
            Op::Sleep { for_ns } => Pending::Sleep(for_ns),
            Op::Send { pipe } => Pending::Send(pipe),
            Op::Recv { pipe } => Pending::Recv(pipe),
            Op::Fork { child } => {
                self.k.cold[task.index()].fork = Some(child);
                Pending::Fork
            }
            Op::Exit => Pending::Exit,
        };
        let cost = self.k.cfg.costs.op_ns;
        let t = self.k.task_mut(task);
        t.pending = pending;
        t.overhead_ns += cost;
    }

    /// An op has taken its time: now its effect.
    fn complete(&mut self, cpu: CpuId, task: TaskId, pending: Pending) {
        self.k.task_mut(task).pending = Pending::Next;
        match pending {
            Pending::Next => {}
            Pending::SleepUntil(at_ns) => self.sleep_until(cpu, task, at_ns),
            Pending::Sleep(for_ns) => self.sleep_until(cpu, task, self.k.now + for_ns),
            Pending::Send(pipe) => self.send(cpu, task, pipe),
            Pending::Recv(pipe) => self.recv(cpu, task, pipe),
            Pending::Fork => self.fork(cpu, task),
            Pending::Exit => self.exit(cpu, task),
        }
    }

    fn send(&mut self, cpu: CpuId, task: TaskId, pipe: PipeId) {
        let p = &mut self.k.pipes[pipe.index()];
        if p.held == p.capacity {
            p.writers.push_back(task);
            self.k.task_mut(task).pending = Pending::Send(pipe);
            return self.block(cpu, task);
        }
        p.held += 1;
        if let Some(reader) = p.readers.pop_front() {
            self.wake_from(cpu, task, reader);
        }
    }

    fn recv(&mut self, cpu: CpuId, task: TaskId, pipe: PipeId) {
        let p = &mut self.k.pipes[pipe.index()];
        if p.held == 0 {
            p.readers.push_back(task);
            self.k.task_mut(task).pending = Pending::Recv(pipe);
            return self.block(cpu, task);
        }
        p.held -= 1;
        if let Some(writer) = p.writers.pop_front() {
            self.wake_from(cpu, task, writer);
        }
    }
}
