//! An encoder: each frame is cut into pieces for worker threads, and the next one begins when all
//! are done.
//!
//! The conductor does the serial part of a frame, sends each worker its piece through a pipe and
//! waits until every worker has answered: a barrier a frame, so that one late worker holds up all.

use serde::Deserialize;

use super::{Builder, Recorder, Work};
use crate::Ns;
use crate::error::SimError;
use crate::ids::PipeId;
use crate::program::{Ctx, Op, Program};
use crate::values::{count, rate};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frames {
    /// Worker threads beside the conductor.
    #[serde(deserialize_with = "count")]
    pub workers: u32,
    /// Work of one worker's piece of a frame.
    #[serde(rename = "work")]
    pub piece: Work,
    /// Work that the conductor does alone before each frame.
    pub serial: Work,
    /// Time between two frames' due times; one after the other, as fast as they go, when absent.
    #[serde(rename = "rate", default, deserialize_with = "rate")]
    pub interval_ns: Option<u64>,
}

impl Frames {
    pub(super) fn build(&self, b: &mut Builder<'_>) -> Result<(), SimError> {
        let frame = b.recorder("frame");
        let pieces = b.machine.add_pipe(self.workers);
        let answers = b.machine.add_pipe(self.workers);
        let conductor = Conductor {
            serial: self.serial,
            interval_ns: self.interval_ns,
            workers: self.workers,
            pieces,
            answers,
            frame,
            due_ns: None,
            stage: Stage::Begin,
        };
        b.spawn("conductor", conductor)?;
        for worker in 0..self.workers {
            let program = Worker {
                piece: self.piece,
                pieces,
                answers,
                stage: Step::Wait,
            };
            b.spawn(&worker.to_string(), program)?;
        }
        Ok(())
    }
}

struct Conductor {
    serial: Work,
    interval_ns: Option<u64>,
    workers: u32,
    pieces: PipeId,
    answers: PipeId,
    frame: Recorder,
    /// When the frame in progress was due.
    due_ns: Option<Ns>,
    stage: Stage,
}

enum Stage {
    Begin,
    Serial,
    HandOut(u32),
    Gather(u32),
}

impl Conductor {
    /// The frame's due time: behind its pace, an encoder goes on at once, and the next frames come
    /// on the old beat.
    fn begin(&mut self, ctx: &mut Ctx<'_>) -> Op {
        let last_ns = self.due_ns;
        let due_ns = match (last_ns, self.interval_ns) {
            (Some(last_ns), Some(interval_ns)) => last_ns + interval_ns,
            _ => ctx.now_ns,
        };
        self.due_ns = Some(due_ns);
        self.stage = Stage::Serial;
        Op::SleepUntil { at_ns: due_ns }
    }
}

impl Program for Conductor {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        match self.stage {
            Stage::Begin => self.begin(ctx),
            Stage::Serial => {
                self.stage = Stage::HandOut(0);
                Op::Run {
                    work_ns: self.serial.draw(ctx.rng),
                }
            }
            Stage::HandOut(given) if given < self.workers => {
                self.stage = Stage::HandOut(given + 1);
                Op::Send { pipe: self.pieces }
            }
            Stage::HandOut(_) => {
                self.stage = Stage::Gather(1);
                Op::Recv { pipe: self.answers }
            }
            Stage::Gather(gathered) if gathered < self.workers => {
                self.stage = Stage::Gather(gathered + 1);
                Op::Recv { pipe: self.answers }
            }
            Stage::Gather(_) => {
                if let Some(due_ns) = self.due_ns {
                    self.frame.since(ctx, due_ns);
                }
                self.begin(ctx)
            }
        }
    }
}

struct Worker {
    piece: Work,
    pieces: PipeId,
    answers: PipeId,
    stage: Step,
}

enum Step {
    Wait,
    Encode,
    Answer,
}

impl Program for Worker {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        match self.stage {
            Step::Wait => {
                self.stage = Step::Encode;
                Op::Recv { pipe: self.pieces }
            }
            Step::Encode => {
                self.stage = Step::Answer;
                Op::Run {
                    work_ns: self.piece.draw(ctx.rng),
                }
            }
            Step::Answer => {
                self.stage = Step::Wait;
                Op::Send { pipe: self.answers }
            }
        }
    }
}
