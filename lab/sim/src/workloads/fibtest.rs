//! Busy threads beside threads that run for a moment and sleep, each on a CPU of its own (after
//! seed 003's fibtest).
//!
//! The sleepers are the point: each wakeup takes a slice of quota to its CPU and leaves most of it
//! there. With slices that expire, that quota is lost and the busy thread is throttled for want of
//! it.

use super::Builder;
use crate::cpuset::CpuSet;
use crate::error::SimError;
use crate::ids::CpuId;
use crate::program::{Ctx, Op, Program};

/// Work between two looks of a busy thread at the clock (a million additions).
const CHUNK_NS: u64 = 1_000_000;
const SLEEP_NS: u64 = 10_000_000;

#[derive(Clone, Debug)]
pub struct Fibtest {
    /// CPUs of the machine; thread n runs on CPU n.
    pub cpus: u32,
    /// How many threads compute without end (fibtest's default is 1).
    pub fast: u32,
    /// Work of a sleeper between two sleeps (a hundred additions).
    pub slow_ns: u64,
}

impl Fibtest {
    pub(super) fn build(&self, b: &mut Builder<'_>) -> Result<(), SimError> {
        for cpu in 0..self.cpus {
            let own = Some(CpuSet::single(CpuId(cpu)));
            if cpu < self.fast {
                let work_ns = CHUNK_NS;
                let fast = move |_: &mut Ctx<'_>| Op::Run { work_ns };
                b.spawn_on(own, &format!("fast{cpu}"), fast)?;
            } else {
                let slow = Slow {
                    work_ns: self.slow_ns,
                    sleeps: false,
                };
                b.spawn_on(own, &format!("slow{cpu}"), slow)?;
            }
        }
        Ok(())
    }
}

/// Default timer slack of an ordinary task: what keeps real sleepers from staying in step.
const SLACK_NS: u64 = 50_000;

struct Slow {
    work_ns: u64,
    sleeps: bool,
}

impl Program for Slow {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        self.sleeps = !self.sleeps;
        if self.sleeps {
            Op::Run {
                work_ns: self.work_ns,
            }
        } else {
            Op::Sleep {
                for_ns: SLEEP_NS + ctx.rng.below(SLACK_NS),
            }
        }
    }
}
