//! Periodic timers: how long after its timer a thread runs.

use super::{Common, Recorder, TaskSet};
use crate::Ns;
use crate::cpuset::CpuSet;
use crate::error::SimError;
use crate::ids::CpuId;
use crate::machine::Machine;
use crate::program::{Ctx, Op, Program};

#[derive(Clone, Debug)]
pub struct Cyclictest {
    pub threads: u32,
    /// Time between two wakeups of the first thread.
    pub interval_ns: u64,
    /// Added to the interval for each further thread (`--distance`).
    pub distance_ns: u64,
    /// Whether thread n runs on CPU n only (`--affinity`).
    pub pinned: bool,
    /// Work after each wakeup, beside what the kernel takes.
    pub work_ns: u64,
    /// What the work becomes, and from which due time on.
    pub step: Option<(u64, Ns)>,
}

impl Cyclictest {
    /// Work after the wakeup that is due then.
    pub fn work_at(&self, due_ns: Ns) -> u64 {
        match self.step {
            Some((work_ns, from_ns)) if due_ns >= from_ns => work_ns,
            _ => self.work_ns,
        }
    }

    pub(super) fn build(
        &self,
        common: &Common,
        machine: &mut Machine,
    ) -> Result<TaskSet, SimError> {
        let mut set = TaskSet::default();
        let wakeup = common.recorder(machine, "wakeup", &mut set);
        for thread in 0..self.threads {
            let interval_ns = self.interval_ns + u64::from(thread) * self.distance_ns;
            let program = Timer {
                interval_ns,
                of: self.clone(),
                wakeup,
                due_ns: None,
                works: false,
            };
            let mut spec = common.task(&thread.to_string(), program);
            if self.pinned {
                spec.cpus = Some(CpuSet::single(CpuId(thread)));
            }
            set.spawn(machine, spec)?;
        }
        Ok(set)
    }
}

struct Timer {
    interval_ns: u64,
    of: Cyclictest,
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
            let work_ns = self.of.work_at(due_ns);
            if work_ns > 0 {
                self.works = true;
                return Op::Run { work_ns };
            }
        }
        self.works = false;
        // Timers that expired while the thread was late are told by the next wakeup's latency alone, as cyclictest does
        // it in its default mode: the beat goes on from the old due time, past what was missed.
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
