//! Groups of senders and receivers: each sender of a group sends to each of its receivers, message
//! by message.
//!
//! As hackbench does it (`-p`: one pipe a receiver): a sender writes one message to each receiver
//! in turn, `loops` times over; a receiver reads until all its senders have sent all. Tasks end
//! when they are done, and record when.

use super::{Builder, Recorder, Work};
use crate::error::SimError;
use crate::ids::PipeId;
use crate::program::{Ctx, Op, Program};

#[derive(Clone, Debug)]
pub struct Hackbench {
    /// Groups; each has `pairs` senders and as many receivers.
    pub groups: u32,
    /// Senders of a group, and receivers (hackbench has 20).
    pub pairs: u32,
    /// Messages from each sender to each receiver.
    pub loops: u32,
    /// Mean work of sending, and of receiving, one message, beside what the system call costs; each
    /// takes half to one and a half of it (caches are as they are).
    pub message_ns: u64,
    /// Messages that a pipe holds (64 KiB of 100 bytes each: 655).
    pub capacity: u32,
}

impl Hackbench {
    pub(super) fn build(&self, b: &mut Builder<'_>) -> Result<(), SimError> {
        let finish = b.recorder("finish");
        let messages = u64::from(self.pairs) * u64::from(self.loops);
        let start_ns = b.common.start_ns;
        for group in 0..self.groups {
            let pipes: Vec<PipeId> = (0..self.pairs)
                .map(|_| b.machine.add_pipe(self.capacity))
                .collect();
            for (index, &pipe) in pipes.iter().enumerate() {
                let program = Receiver {
                    pipe,
                    left: messages,
                    message_ns: self.message_ns,
                    received: false,
                    finish,
                    start_ns,
                };
                b.spawn(&format!("{group}r{index}"), program)?;
            }
            for index in 0..self.pairs {
                let program = Sender {
                    pipes: pipes.clone(),
                    sent: 0,
                    messages,
                    message_ns: self.message_ns,
                    prepared: false,
                    finish,
                    start_ns,
                };
                b.spawn(&format!("{group}s{index}"), program)?;
            }
        }
        Ok(())
    }
}

struct Sender {
    pipes: Vec<PipeId>,
    sent: u64,
    messages: u64,
    message_ns: u64,
    prepared: bool,
    finish: Recorder,
    start_ns: u64,
}

impl Program for Sender {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        if self.sent == self.messages {
            self.finish.since(ctx, self.start_ns);
            return Op::Exit;
        }
        if !self.prepared {
            self.prepared = true;
            return Op::Run {
                work_ns: Work::uniform(self.message_ns).draw(ctx.rng),
            };
        }
        self.prepared = false;
        let pipe = self.pipes[(self.sent % self.pipes.len() as u64) as usize];
        self.sent += 1;
        Op::Send { pipe }
    }
}

struct Receiver {
    pipe: PipeId,
    left: u64,
    message_ns: u64,
    received: bool,
    finish: Recorder,
    start_ns: u64,
}

impl Program for Receiver {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        if self.received {
            self.received = false;
            return Op::Run {
                work_ns: Work::uniform(self.message_ns).draw(ctx.rng),
            };
        }
        if self.left == 0 {
            self.finish.since(ctx, self.start_ns);
            return Op::Exit;
        }
        self.left -= 1;
        self.received = true;
        Op::Recv { pipe: self.pipe }
    }
}
