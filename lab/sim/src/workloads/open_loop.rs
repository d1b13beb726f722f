//! A server whose requests come when they come, whatever it does: latency counts from the scheduled
//! arrival.
//!
//! A free worker takes the next request that is not taken and sleeps until it is due; when all are
//! busy, requests wait in the order in which they came. That is one queue before many workers,
//! without a task that hands out.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Arrivals, Builder, Pattern, Recorder, Request, Work};
use crate::error::SimError;
use crate::program::{Ctx, Op, Program};

#[derive(Clone, Debug)]
pub struct OpenLoop {
    pub workers: u32,
    /// Work of one request.
    pub work: Work,
    pub pattern: Pattern,
}

impl OpenLoop {
    pub(super) fn build(&self, b: &mut Builder<'_>) -> Result<(), SimError> {
        let latency = b.recorder("latency");
        let wakeup = b.recorder("wakeup");
        let (start_ns, rng) = (b.common.start_ns, b.common.rng());
        let arrivals = Arrivals::new(self.pattern.clone(), self.work, start_ns, rng);
        let arrivals = Arc::new(Mutex::new(arrivals));
        for worker in 0..self.workers {
            let program = Worker {
                arrivals: Arc::clone(&arrivals),
                latency,
                wakeup,
                state: State::Free,
            };
            b.spawn(&worker.to_string(), program)?;
        }
        Ok(())
    }
}

struct Worker {
    arrivals: Arc<Mutex<Arrivals>>,
    latency: Recorder,
    wakeup: Recorder,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    Free,
    Waits(Request),
    Serves(Request),
}

impl Program for Worker {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        match self.state {
            State::Free => {}
            State::Waits(request) => {
                self.wakeup.since(ctx, request.due_ns);
                return self.serve(request);
            }
            State::Serves(request) => self.latency.since(ctx, request.due_ns),
        }
        // One thread runs a machine, so the lock is never held while it panics.
        let next = self
            .arrivals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .next();
        match next {
            None => Op::Exit,
            Some(request) if request.due_ns > ctx.now_ns => {
                self.state = State::Waits(request);
                Op::SleepUntil {
                    at_ns: request.due_ns,
                }
            }
            Some(request) => self.serve(request),
        }
    }
}

impl Worker {
    fn serve(&mut self, request: Request) -> Op {
        self.state = State::Serves(request);
        Op::Run {
            work_ns: request.work_ns,
        }
    }
}
