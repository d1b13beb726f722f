//! Clients that send a request, wait for its answer, think, and send the next: a stall holds back
//! the next request, so a closed loop shows less of it than an open one.

use serde::Deserialize;

use super::{Builder, Recorder, Work};
use crate::Ns;
use crate::error::SimError;
use crate::program::{Ctx, Op, Program};
use crate::values::count;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClosedLoop {
    /// Clients, each with a thread of its own that serves it.
    #[serde(deserialize_with = "count")]
    pub clients: u32,
    /// Work of one request.
    pub work: Work,
    /// Time between an answer and the next request.
    pub think: Work,
}

impl ClosedLoop {
    pub(super) fn build(&self, b: &mut Builder<'_>) -> Result<(), SimError> {
        let latency = b.recorder("latency");
        for client in 0..self.clients {
            let program = Client {
                work: self.work,
                think: self.think,
                latency,
                request_ns: None,
                due_ns: 0,
            };
            b.spawn(&client.to_string(), program)?;
        }
        Ok(())
    }
}

struct Client {
    work: Work,
    think: Work,
    latency: Recorder,
    /// When the request that is being served was sent.
    request_ns: Option<Ns>,
    /// When the next one is sent.
    due_ns: Ns,
}

impl Program for Client {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        if let Some(sent_ns) = self.request_ns.take() {
            self.latency.since(ctx, sent_ns);
            self.due_ns = 0;
        }
        if self.due_ns == 0 {
            self.due_ns = ctx.now_ns + self.think.draw(ctx.rng);
            return Op::SleepUntil { at_ns: self.due_ns };
        }
        // The wakeup is part of the latency: the request was sent when the thinking ended.
        self.request_ns = Some(self.due_ns);
        Op::Run {
            work_ns: self.work.draw(ctx.rng),
        }
    }
}
