//! What the machine keeps of each CPU, task, group and pipe.

use crate::Ns;
use crate::cpuset::CpuSet;
use crate::hist::Histogram;
use crate::ids::{CpuId, GroupId, PipeId, TaskId};
use crate::prng::Prng;
use crate::program::{Program, TaskSpec};
use crate::spec::{Bandwidth, GroupSpec, Policy};
use std::collections::VecDeque;

/// Where a task is in its life. New → Runnable ↔ Waiting → Exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskState {
    /// Spawned; its start is ahead.
    New,
    /// On a run queue, or running.
    Runnable,
    /// Asleep, or blocked on a pipe.
    Waiting,
    Exited,
}

/// What a task does once its run and overhead are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    /// Ask the program for its next op.
    Next,
    Send(PipeId),
    Recv(PipeId),
    SleepUntil(Ns),
    Sleep(u64),
    Fork,
    Exit,
}

pub(crate) struct Task {
    pub(crate) state: TaskState,
    pub(crate) policy: Policy,
    pub(crate) nice: i8,
    /// May use every CPU of the machine.
    pub(crate) anywhere: bool,
    /// Where it runs, waits, or ran last.
    pub(crate) cpu: CpuId,
    pub(crate) group: GroupId,
    /// Its place in [`Cpu::queued`], or [`NONE`](crate::kernel::NONE).
    pub(crate) queued_at: u32,
    /// The fair class's entity.
    pub(crate) ent: u32,
    pub(crate) pending: Pending,
    /// CPU time the kernel takes before the program's own work goes on.
    pub(crate) overhead_ns: u64,
    /// Work still to do at full speed.
    pub(crate) work_ns: u64,
    /// A slice of its own, or 0.
    pub(crate) slice_ns: u64,
    pub(crate) woken_ns: Ns,
    /// It has not run since.
    pub(crate) is_woken: bool,
    /// Since when it waits for a CPU, while it does.
    pub(crate) queued_ns: Ns,
    /// When it last left a CPU.
    pub(crate) last_ran_ns: Ns,
    pub(crate) usage_ns: u64,
    pub(crate) work_done_ns: u64,
}

/// What is seldom touched of a task.
pub(crate) struct TaskCold {
    pub(crate) program: Option<Box<dyn Program>>,
    pub(crate) fork: Option<Box<TaskSpec>>,
    pub(crate) rng: Prng,
    pub(crate) asked: Option<CpuSet>,
    /// What it asked for, within its group's set.
    pub(crate) allowed: CpuSet,
}

#[derive(Default)]
pub(crate) struct Cpu {
    pub(crate) curr: Option<TaskId>,
    pub(crate) charged_to: Ns,
    /// Work advanced up to here.
    pub(crate) worked_to: Ns,
    pub(crate) speed_ppm: u32,
    /// Of a ns of work, in millionths: what integer division left over.
    pub(crate) carry_ppm: u64,
    pub(crate) busy_ns: u64,
    /// Fair tasks queued or running here, also those whose group is
    /// throttled.
    pub(crate) queued: Vec<TaskId>,
    /// Tasks of the class on the queue that want to run (EEVDF keeps some sleepers queued),
    /// throttled ones left out.
    pub(crate) nr_runnable: u32,
    /// Of the queued, tasks that yield to everybody (SCHED_IDLE or below cpu.idle).
    pub(crate) nr_idle: u32,
    pub(crate) idle_since: Ns,
    /// Balance wants the running task on that CPU instead.
    pub(crate) push_to: Option<CpuId>,
    /// When it balances next (periodic balance).
    pub(crate) balance_at: Ns,
}

pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) parent: GroupId,
    pub(crate) depth: u32,
    pub(crate) spec: GroupSpec,
    pub(crate) bandwidth: Bandwidth,
    /// CPUs of the group: its own within its parent's.
    pub(crate) cpus: CpuSet,
    pub(crate) usage_ns: u64,
    /// The same by CPU, while anybody counts; else empty.
    pub(crate) usage_by_cpu_ns: Vec<u64>,
    pub(crate) work_done_ns: u64,
    pub(crate) run_delay_ns: u64,
    /// Times that a task of the group or below began to run, while anybody counts.
    pub(crate) runs: u64,
    /// Of those, after a longer wait than this.
    pub(crate) late_runs: u64,
    pub(crate) late_after_ns: Ns,
    /// Writes of its files.
    pub(crate) writes: u64,
    /// From waking to running, of its own tasks.
    pub(crate) wakeups: Histogram,
    /// It was made for one task of this group.
    pub(crate) of_task: Option<GroupId>,
}

#[derive(Default)]
pub(crate) struct Pipe {
    pub(crate) capacity: u32,
    pub(crate) held: u32,
    pub(crate) readers: VecDeque<TaskId>,
    pub(crate) writers: VecDeque<TaskId>,
}
