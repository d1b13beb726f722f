//! Computing without end, or for a part of each period.

use super::Builder;
use crate::Ns;
use crate::error::SimError;
use crate::program::{Ctx, Op, Program};

/// One op of an endless hog: long, so that it costs few events.
const CHUNK_NS: u64 = 1_000_000_000;
/// One op of a hog that ends: it is finished first, so that it is short.
const ENDING_CHUNK_NS: u64 = 10_000_000;

#[derive(Clone, Debug)]
pub struct Hog {
    pub tasks: u32,
    /// Work in each period, and the period; without end when absent.
    pub busy: Option<(u64, u64)>,
}

impl Hog {
    pub(super) fn build(&self, b: &mut Builder<'_>) -> Result<(), SimError> {
        let work_ns = b.common.end_ns.map_or(CHUNK_NS, |_| ENDING_CHUNK_NS);
        for task in 0..self.tasks {
            match self.busy {
                None => b.spawn(&task.to_string(), move |_: &mut Ctx<'_>| Op::Run {
                    work_ns,
                }),
                Some((work_ns, period_ns)) => {
                    let program = Periodic {
                        work_ns,
                        period_ns,
                        next_ns: None,
                        runs: false,
                    };
                    b.spawn(&task.to_string(), program)
                }
            }?;
        }
        Ok(())
    }
}

/// Works at the beginning of each period. Whole periods that pass while it still works are left
/// out, so that its use stays what was asked for and does not pile up.
struct Periodic {
    work_ns: u64,
    period_ns: u64,
    next_ns: Option<Ns>,
    runs: bool,
}

impl Program for Periodic {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        // Each begins somewhere in its period: tasks that start together should not run in step for
        // ever.
        let next_ns = self
            .next_ns
            .get_or_insert_with(|| ctx.now_ns + ctx.rng.below(self.period_ns.max(1)));
        if self.runs {
            self.runs = false;
            *next_ns += self.period_ns;
            // Work that ends in the next period, however late, goes on with that one's.
            let late_ns = ctx.now_ns.saturating_sub(*next_ns);
            *next_ns += late_ns / self.period_ns.max(1) * self.period_ns;
        }
        if *next_ns > ctx.now_ns {
            return Op::SleepUntil { at_ns: *next_ns };
        }
        self.runs = true;
        Op::Run {
            work_ns: self.work_ns,
        }
    }
}
