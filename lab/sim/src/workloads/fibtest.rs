//! Busy threads beside threads that run for a moment and sleep, each on a CPU of its own (after
//! seed 003's fibtest).
//!
//! The sleepers are the point: each wakeup takes a slice of quota to its CPU and leaves most of it
//! there. With slices that expire, that quota is lost and the busy thread is throttled for want of
//! it.

use serde::Deserialize;

use super::{Builder, Recorder};
use crate::cpuset::CpuSet;
use crate::error::SimError;
use crate::ids::CpuId;
use crate::program::{Ctx, Op, Program};
use crate::values::{any_count, any_time, count, some_time};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fibtest {
    /// Threads in all; thread n runs on CPU n modulo the machine's.
    #[serde(deserialize_with = "count")]
    pub threads: u32,
    /// How many of them compute without end (fibtest's default is 1).
    #[serde(deserialize_with = "any_count")]
    pub fast: u32,
    /// CPUs of the machine.
    #[serde(skip)]
    pub cpus: u32,
    /// Work between two looks of a busy thread at the clock (a million additions).
    #[serde(rename = "chunk", deserialize_with = "some_time")]
    pub chunk_ns: u64,
    /// Work of a sleeper between two sleeps (a hundred additions).
    #[serde(rename = "work", deserialize_with = "some_time")]
    pub slow_ns: u64,
    #[serde(rename = "sleep", deserialize_with = "any_time")]
    pub sleep_ns: u64,
}

impl Fibtest {
    pub(super) fn build(&self, b: &mut Builder<'_>) -> Result<(), SimError> {
        let chunk = b.recorder("chunk");
        for thread in 0..self.threads {
            let cpu = thread % self.cpus.max(1);
            let own = Some(CpuSet::single(CpuId(cpu)));
            if cpu < self.fast {
                let program = Fast {
                    chunk_ns: self.chunk_ns,
                    chunk,
                    began_ns: None,
                };
                b.spawn_on(own, &format!("fast{thread}"), program)?;
            } else {
                let program = Slow {
                    work_ns: self.slow_ns,
                    sleep_ns: self.sleep_ns,
                    sleeps: false,
                };
                b.spawn_on(own, &format!("slow{thread}"), program)?;
            }
        }
        Ok(())
    }
}

struct Fast {
    chunk_ns: u64,
    chunk: Recorder,
    began_ns: Option<u64>,
}

impl Program for Fast {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        if let Some(began_ns) = self.began_ns {
            self.chunk.since(ctx, began_ns);
        }
        self.began_ns = Some(ctx.now_ns);
        Op::Run {
            work_ns: self.chunk_ns,
        }
    }
}

/// Default timer slack of an ordinary task: what keeps real sleepers from staying in step.
const SLACK_NS: u64 = 50_000;

struct Slow {
    work_ns: u64,
    sleep_ns: u64,
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
                for_ns: self.sleep_ns + ctx.rng.below(SLACK_NS),
            }
        }
    }
}
