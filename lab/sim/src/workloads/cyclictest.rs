//! A periodic timer: how long after it its thread runs.

use serde::Deserialize;

use super::{Builder, Recorder};
use crate::Ns;
use crate::error::SimError;
use crate::program::{Ctx, Op, Program};
use crate::values::{any_time, some_time};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cyclictest {
    /// Time between two wakeups.
    #[serde(rename = "interval", deserialize_with = "some_time")]
    pub interval_ns: u64,
    /// Work after each wakeup, beside what the kernel takes.
    #[serde(rename = "work", deserialize_with = "any_time")]
    pub work_ns: u64,
}

impl Cyclictest {
    pub(super) fn build(&self, b: &mut Builder<'_>) -> Result<(), SimError> {
        let program = Timer {
            interval_ns: self.interval_ns,
            work_ns: self.work_ns,
            wakeup: b.recorder("wakeup"),
            due_ns: None,
            works: false,
        };
        b.spawn("0", program)
    }
}

struct Timer {
    interval_ns: u64,
    work_ns: u64,
    wakeup: Recorder,
    due_ns: Option<Ns>,
    works: bool,
}

impl Program for Timer {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        if let Some(due_ns) = self.due_ns
            && !self.works
        {
            self.wakeup.since(ctx, due_ns);
            if self.work_ns > 0 {
                self.works = true;
                return Op::Run {
                    work_ns: self.work_ns,
                };
            }
        }
        self.works = false;
        // Timers that expired while the thread was late are told by the next wakeup's latency
        // alone, as cyclictest does it in its default mode: the beat goes on from the old due time,
        // past what was missed.
        let mut next_ns = match self.due_ns {
            Some(due_ns) => due_ns + self.interval_ns,
            // It does not start in step with the machine's ticks.
            None => ctx.now_ns + ctx.rng.below(self.interval_ns.max(1)),
        };
        if next_ns <= ctx.now_ns {
            let missed = (ctx.now_ns - next_ns) / self.interval_ns.max(1) + 1;
            next_ns += missed * self.interval_ns.max(1);
        }
        self.due_ns = Some(next_ns);
        Op::SleepUntil { at_ns: next_ns }
    }
}
