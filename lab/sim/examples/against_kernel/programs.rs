//! The tasks of a scenario, as the kernels' runner has them (`tests/check/tasks.c`).

use tidegate_sim::workloads::Cyclictest;
use tidegate_sim::{Ctx, Op, PipeId, Program, SeriesId};

/// Burns for ever.
pub struct Hog;

impl Program for Hog {
    fn next(&mut self, _: &mut Ctx<'_>) -> Op {
        Op::Run {
            work_ns: 1_000_000_000,
        }
    }
}

/// At each multiple of its period: records how late it woke, then works.
pub struct Sleeper {
    /// Its beat and its work.
    pub timer: Cyclictest,
    /// The way back from the timer's interrupt, which it takes before it can look at the clock.
    pub timer_ns: u64,
    pub count_from_ns: u64,
    pub series: Option<SeriesId>,
    /// From when it was to wake to the end of its work.
    pub done: Option<SeriesId>,
    pub at_ns: u64,
    /// It slept before what it does now.
    pub woken: bool,
    pub state: SleeperState,
}

/// What the sleeper did last.
#[derive(Clone, Copy)]
pub enum SleeperState {
    Worked,
    Slept,
    CameBack,
}

impl Sleeper {
    fn work(&self) -> Op {
        Op::Run {
            work_ns: self.timer.work_at(self.at_ns),
        }
    }

    fn record(&self, ctx: &mut Ctx<'_>, series: Option<SeriesId>) {
        if let Some(series) = series
            && self.at_ns >= self.count_from_ns
        {
            ctx.record(series, ctx.now_ns - self.at_ns);
        }
    }
}

impl Program for Sleeper {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        match self.state {
            SleeperState::Worked => {
                if self.woken {
                    self.record(ctx, self.done);
                }
                self.woken = false;
                self.at_ns += self.timer.interval_ns;
                // One that has fallen behind does not wait, so it has no wakeup to record.
                if ctx.now_ns >= self.at_ns {
                    return self.work();
                }
                self.state = SleeperState::Slept;
                Op::SleepUntil { at_ns: self.at_ns }
            }
            SleeperState::Slept => {
                self.state = SleeperState::CameBack;
                Op::Run {
                    work_ns: self.timer_ns,
                }
            }
            SleeperState::CameBack => {
                self.state = SleeperState::Worked;
                self.woken = true;
                self.record(ctx, self.series);
                self.work()
            }
        }
    }
}

/// Sends to each pipe of its team in turn.
pub struct Sender {
    pub pipes: Vec<PipeId>,
    pub next: usize,
    pub left: u64,
    pub finished: SeriesId,
}

impl Program for Sender {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        if self.left == 0 {
            ctx.record(self.finished, ctx.now_ns);
            return Op::Exit;
        }
        self.left -= 1;
        let pipe = self.pipes[self.next % self.pipes.len()];
        self.next += 1;
        Op::Send { pipe }
    }
}

/// Receives from its own pipe.
pub struct Receiver {
    pub pipe: PipeId,
    pub left: u64,
    pub finished: SeriesId,
}

impl Program for Receiver {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        if self.left == 0 {
            ctx.record(self.finished, ctx.now_ns);
            return Op::Exit;
        }
        self.left -= 1;
        Op::Recv { pipe: self.pipe }
    }
}
