//! A task and what it does: a [`Program`] gives one [`Op`] after another.
//!
//! The machine asks for the next op when the last one is complete and the task is on a CPU.

use crate::Ns;
use crate::cpuset::CpuSet;
use crate::hist::Histogram;
use crate::ids::{GroupId, PipeId, SeriesId};
use crate::prng::Prng;
use crate::spec::Policy;

#[derive(Debug)]
pub struct TaskSpec {
    pub name: String,
    /// The group it starts in.
    pub group: GroupId,
    pub policy: Policy,
    /// −20..=19.
    pub nice: i8,
    /// A slice of its own (`sched_runtime`), clamped to 0.1–100 ms.
    pub slice_ns: Option<u64>,
    /// CPUs it may use; all of the group's when absent.
    pub cpus: Option<CpuSet>,
    /// When it starts; the past means now.
    pub start_ns: Ns,
    pub program: Box<dyn Program>,
}

impl TaskSpec {
    /// A task with the kernel's defaults.
    pub fn new(name: &str, group: GroupId, program: Box<dyn Program>) -> TaskSpec {
        TaskSpec {
            name: name.to_owned(),
            group,
            policy: Policy::Normal,
            nice: 0,
            slice_ns: None,
            cpus: None,
            start_ns: 0,
            program,
        }
    }
}

#[derive(Debug)]
pub enum Op {
    /// Computes: this much CPU time at full speed (longer beside busy neighbours).
    Run {
        /// CPU time at full speed.
        work_ns: u64,
    },
    /// Sleeps until a time; one in the past is no sleep.
    SleepUntil {
        at_ns: Ns,
    },
    Sleep {
        for_ns: u64,
    },
    /// Puts one message into a pipe; waits while it is full.
    Send {
        pipe: PipeId,
    },
    /// Takes one message from a pipe; waits while it is empty.
    Recv {
        pipe: PipeId,
    },
    /// Creates a task. What the kernel hands on at fork is handed on here too: group, policy,
    /// nice, slice and CPUs of the parent replace what the child's spec leaves at its default.
    Fork {
        child: Box<TaskSpec>,
    },
    Exit,
}

/// What a task does, op by op.
pub trait Program: Send {
    /// The next op. Called at the start and whenever the last op is complete.
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op;
}

impl std::fmt::Debug for dyn Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Program")
    }
}

impl<F: FnMut(&mut Ctx<'_>) -> Op + Send> Program for F {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        self(ctx)
    }
}

/// What a program sees of the machine.
pub struct Ctx<'a> {
    pub now_ns: Ns,
    /// The task's own stream of random numbers: what it draws does not depend
    /// on what other tasks do.
    pub rng: &'a mut Prng,
    /// The series that programs record into.
    pub(crate) series: &'a mut Vec<Histogram>,
}

impl Ctx<'_> {
    pub fn record(&mut self, series: SeriesId, value_ns: u64) {
        self.series[series.index()].record(value_ns);
    }
}
