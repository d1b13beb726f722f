//! Priority inversion: side work takes a lock that main waits for.
//!
//! Main comes on a beat, takes the lock, works and lets it go; its latency counts from the beat.
//! Side work takes the same lock now and then; when it is preempted or throttled while it holds it,
//! main waits for side work.

use serde::Deserialize;

use super::{Common, Recorder, TaskSet, Work};
use crate::Ns;
use crate::error::SimError;
use crate::ids::{GroupId, LockId};
use crate::machine::Machine;
use crate::program::{Ctx, Op, Program};
use crate::values::{count, some_time};

/// Main and side work that share a lock.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockHolder {
    /// Main's tasks, in the workload's group.
    #[serde(deserialize_with = "count")]
    pub tasks: u32,
    /// Time between two rounds of one main task.
    #[serde(rename = "interval", deserialize_with = "some_time")]
    pub interval_ns: u64,
    /// Main's work with the lock.
    pub work: Work,
    /// The group of the side tasks.
    #[serde(skip)]
    pub side_group: GroupId,
    #[serde(deserialize_with = "count")]
    pub side_tasks: u32,
    /// Side work with the lock.
    pub hold: Work,
    /// Side work without it, in between.
    pub outside: Work,
}

impl LockHolder {
    pub(super) fn build(
        &self,
        common: &Common,
        machine: &mut Machine,
    ) -> Result<TaskSet, SimError> {
        let mut set = TaskSet::default();
        let lock = machine.add_lock();
        let latency = common.recorder(machine, "latency", &mut set);
        let wait = common.recorder(machine, "lock_wait", &mut set);
        let held = common.recorder(machine, "held", &mut set);
        for task in 0..self.tasks {
            let program = Main {
                lock,
                interval_ns: self.interval_ns,
                work: self.work,
                latency,
                wait,
                due_ns: None,
                asked_ns: 0,
                stage: Stage::Rest,
            };
            set.spawn(machine, common.task(&format!("main{task}"), program))?;
        }
        for task in 0..self.side_tasks {
            let program = Side {
                lock,
                hold: self.hold,
                outside: self.outside,
                held,
                taken_ns: 0,
                stage: Stage::Rest,
            };
            let mut spec = common.task(&format!("side{task}"), program);
            spec.group = self.side_group;
            set.spawn(machine, spec)?;
        }
        Ok(set)
    }
}

enum Stage {
    Rest,
    Ask,
    Work,
    Release,
    Done,
}

struct Main {
    lock: LockId,
    interval_ns: u64,
    work: Work,
    latency: Recorder,
    wait: Recorder,
    due_ns: Option<Ns>,
    asked_ns: Ns,
    stage: Stage,
}

impl Program for Main {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        match self.stage {
            Stage::Rest => self.rest(ctx),
            Stage::Ask => {
                self.asked_ns = ctx.now_ns;
                self.stage = Stage::Work;
                Op::Lock { lock: self.lock }
            }
            Stage::Work => {
                self.wait.since(ctx, self.asked_ns);
                self.stage = Stage::Release;
                Op::Run {
                    work_ns: self.work.draw(ctx.rng),
                }
            }
            Stage::Release => {
                self.stage = Stage::Done;
                Op::Unlock { lock: self.lock }
            }
            Stage::Done => {
                if let Some(due_ns) = self.due_ns {
                    self.latency.since(ctx, due_ns);
                }
                self.rest(ctx)
            }
        }
    }
}

impl Main {
    /// An open loop: a round that is late makes the next one late, and both say so.
    fn rest(&mut self, ctx: &mut Ctx<'_>) -> Op {
        self.stage = Stage::Ask;
        let due_ns = match self.due_ns {
            Some(last_ns) => last_ns + self.interval_ns,
            None => ctx.now_ns + ctx.rng.below(self.interval_ns.max(1)),
        };
        self.due_ns = Some(due_ns);
        Op::SleepUntil { at_ns: due_ns }
    }
}

struct Side {
    lock: LockId,
    hold: Work,
    outside: Work,
    held: Recorder,
    taken_ns: Ns,
    stage: Stage,
}

impl Program for Side {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        match self.stage {
            Stage::Rest => {
                self.stage = Stage::Ask;
                Op::Run {
                    work_ns: self.outside.draw(ctx.rng),
                }
            }
            Stage::Ask => {
                self.stage = Stage::Work;
                Op::Lock { lock: self.lock }
            }
            Stage::Work => {
                self.taken_ns = ctx.now_ns;
                self.stage = Stage::Release;
                Op::Run {
                    work_ns: self.hold.draw(ctx.rng),
                }
            }
            Stage::Release => {
                self.held.since(ctx, self.taken_ns);
                self.stage = Stage::Done;
                Op::Unlock { lock: self.lock }
            }
            Stage::Done => {
                self.stage = Stage::Ask;
                Op::Run {
                    work_ns: self.outside.draw(ctx.rng),
                }
            }
        }
    }
}
