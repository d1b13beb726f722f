//! Message threads that hand requests to workers, after schbench.
//!
//! With a rate (`-R`), a message thread wakes on a beat and hands a batch of requests to its
//! workers in turn, whether or not they are done with the last one. Without, it gives a worker its
//! next request when that one has answered the last.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;

use super::{Common, Recorder, TaskSet, Work};
use crate::Ns;
use crate::error::SimError;
use crate::ids::PipeId;
use crate::machine::Machine;
use crate::program::{Ctx, Op, Program};
use crate::values::{count, rate};

/// Requests that a worker may be behind with: more than any run has.
const CAPACITY: u32 = 1 << 20;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schbench {
    #[serde(deserialize_with = "count")]
    pub messengers: u32,
    /// Worker threads of each.
    #[serde(deserialize_with = "count")]
    pub workers: u32,
    /// Work of one request.
    pub work: Work,
    /// Mean time between two requests of all message threads together; request and answer when
    /// absent.
    #[serde(rename = "rate", default, deserialize_with = "rate")]
    pub gap_ns: Option<u64>,
    /// Requests that a message thread sends at once; 1 when absent.
    #[serde(default, deserialize_with = "count")]
    pub batch: Option<u32>,
}

impl Schbench {
    pub(super) fn build(
        &self,
        common: &Common,
        machine: &mut Machine,
    ) -> Result<TaskSet, SimError> {
        let mut set = TaskSet::default();
        let wakeup = common.recorder(machine, "wakeup", &mut set);
        let request = common.recorder(machine, "request", &mut set);
        // 10^12 ns · 10^5 · 10^5 does not fit; nobody waits that long for a batch.
        let batch = self.batch.unwrap_or(1);
        let requests = u64::from(batch) * u64::from(self.messengers);
        let beat_ns = self.gap_ns.map(|gap_ns| gap_ns.saturating_mul(requests));
        for messenger in 0..self.messengers {
            let answers = machine.add_pipe(CAPACITY);
            let desks: Vec<Desk> = (0..self.workers)
                .map(|_| Desk {
                    pipe: machine.add_pipe(CAPACITY),
                    posted_ns: Arc::default(),
                })
                .collect();
            let freed = Arc::new(Mutex::new((0..desks.len()).collect()));
            for (index, desk) in desks.iter().enumerate() {
                let program = Worker {
                    index,
                    desk: desk.clone(),
                    answer: beat_ns.is_none().then(|| (answers, Arc::clone(&freed))),
                    work: self.work,
                    wakeup,
                    request,
                    posted_ns: 0,
                    stage: Stage::Wait,
                };
                let spec = common.task(&format!("{messenger}w{index}"), program);
                set.spawn(machine, spec)?;
            }
            let role = format!("{messenger}m");
            let spec = match beat_ns {
                Some(beat_ns) => {
                    let program = PacedMessenger {
                        desks,
                        beat_ns,
                        batch,
                        due_ns: common.start_ns,
                        left: 0,
                        next_desk: 0,
                    };
                    common.task(&role, program)
                }
                None => common.task(
                    &role,
                    AnsweringMessenger {
                        desks,
                        freed,
                        answers,
                    },
                ),
            };
            set.spawn(machine, spec)?;
        }
        Ok(set)
    }
}

/// Where a worker finds its requests: a message in the pipe for each, and when it was posted.
#[derive(Clone)]
struct Desk {
    pipe: PipeId,
    posted_ns: Arc<Mutex<VecDeque<Ns>>>,
}

impl Desk {
    fn post(&self, now_ns: Ns) -> Op {
        held(&self.posted_ns).push_back(now_ns);
        Op::Send { pipe: self.pipe }
    }
}

/// One thread runs a machine, so such a lock is never held while it panics.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct PacedMessenger {
    desks: Vec<Desk>,
    beat_ns: u64,
    batch: u32,
    due_ns: Ns,
    left: u32,
    next_desk: usize,
}

impl Program for PacedMessenger {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        if self.left == 0 {
            self.left = self.batch;
            self.due_ns += self.beat_ns;
            return Op::SleepUntil { at_ns: self.due_ns };
        }
        self.left -= 1;
        let desk = &self.desks[self.next_desk];
        self.next_desk = (self.next_desk + 1) % self.desks.len();
        desk.post(ctx.now_ns)
    }
}

struct AnsweringMessenger {
    desks: Vec<Desk>,
    /// Workers that wait for a request.
    freed: Arc<Mutex<VecDeque<usize>>>,
    answers: PipeId,
}

impl Program for AnsweringMessenger {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        let next = held(&self.freed).pop_front();
        match next {
            Some(worker) => self.desks[worker].post(ctx.now_ns),
            None => Op::Recv { pipe: self.answers },
        }
    }
}

struct Worker {
    index: usize,
    desk: Desk,
    answer: Option<(PipeId, Arc<Mutex<VecDeque<usize>>>)>,
    work: Work,
    wakeup: Recorder,
    request: Recorder,
    posted_ns: Ns,
    stage: Stage,
}

enum Stage {
    Wait,
    Begin,
    End,
}

impl Program for Worker {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        match self.stage {
            Stage::Wait => {
                self.stage = Stage::Begin;
                Op::Recv {
                    pipe: self.desk.pipe,
                }
            }
            Stage::Begin => {
                // A message never comes without its time: post() writes the time first.
                self.posted_ns = held(&self.desk.posted_ns).pop_front().unwrap_or(ctx.now_ns);
                // A worker that was busy then did not wait for a CPU but for itself.
                if ctx.woken_ns() >= self.posted_ns {
                    self.wakeup.since(ctx, self.posted_ns);
                }
                self.stage = Stage::End;
                Op::Run {
                    work_ns: self.work.draw(ctx.rng),
                }
            }
            Stage::End => {
                self.request.since(ctx, self.posted_ns);
                let Some((answers, freed)) = &self.answer else {
                    self.stage = Stage::Begin;
                    return Op::Recv {
                        pipe: self.desk.pipe,
                    };
                };
                held(freed).push_back(self.index);
                self.stage = Stage::Wait;
                Op::Send { pipe: *answers }
            }
        }
    }
}
