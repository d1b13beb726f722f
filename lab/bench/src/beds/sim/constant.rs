//! Main work that holds a level, as the host's worker does: on each CPU a thread that works its share
//! of every 2 ms, makes up in the next period what it lacked (up to 20 ms), and follows its orders at
//! the moment they name.

use std::sync::Arc;

use tidegate_sim::workloads::Common;
use tidegate_sim::{CpuId, CpuSet, Ctx, Machine, Ns, Op, Program};

use super::built;
use crate::LabError;

const PERIOD_NS: u64 = 2_000_000;
const DEBT_MAX_NS: u64 = 20_000_000;
/// The least work that is worth a turn; what is less waits for the next period.
const LEAST_NS: u64 = 1_000;

/// Levels over time, in order: from when on, and ppm of each CPU.
pub type Orders = Arc<[(Ns, u32)]>;

/// Puts a thread on each CPU of the machine.
pub fn start(machine: &mut Machine, common: &Common, orders: &Orders) -> Result<(), LabError> {
    let cpus = machine.config().topology.cpus();
    for cpu in 0..cpus {
        let mut common = common.clone();
        common.cpus = Some(CpuSet::single(CpuId(cpu)));
        let program = Level::new(
            Arc::clone(orders),
            PERIOD_NS * u64::from(cpu) / u64::from(cpus),
        );
        built(machine.spawn(common.task(&cpu.to_string(), program)))?;
    }
    Ok(())
}

struct Level {
    orders: Orders,
    phase_ns: u64,
    /// The order in force.
    index: usize,
    /// What is owed counts from here.
    since_ns: Ns,
    /// Work done since then, and debt that was given up.
    done_ns: u64,
    running_ns: u64,
}

impl Level {
    fn new(orders: Orders, phase_ns: u64) -> Self {
        Level {
            orders,
            phase_ns,
            index: 0,
            since_ns: 0,
            done_ns: 0,
            running_ns: 0,
        }
    }

    fn next_change_ns(&self) -> Ns {
        self.orders.get(self.index + 1).map_or(Ns::MAX, |o| o.0)
    }

    fn owed_ns(&self, at_ns: Ns) -> u64 {
        let level_ppm = self.orders.get(self.index).map_or(0, |o| o.1);
        // A day at the full level: 8.64e13 · 10^6 < 2^67, so in 128 bits.
        let span = u128::from(at_ns.saturating_sub(self.since_ns));
        (span * u128::from(level_ppm) / 1_000_000) as u64
    }
}

impl Program for Level {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        let now = ctx.now_ns;
        self.done_ns += std::mem::take(&mut self.running_ns);
        while self.next_change_ns() <= now {
            self.index += 1;
            (self.since_ns, self.done_ns) = (self.orders[self.index].0, 0);
        }
        let owed_ns = self.owed_ns(now);
        self.done_ns = self.done_ns.max(owed_ns.saturating_sub(DEBT_MAX_NS));
        let mut period_end = now - now % PERIOD_NS + self.phase_ns;
        if period_end <= now {
            period_end += PERIOD_NS;
        }
        let until = period_end.min(self.next_change_ns());
        let lacking_ns = self.owed_ns(until).saturating_sub(self.done_ns);
        if lacking_ns < LEAST_NS {
            return Op::SleepUntil { at_ns: until };
        }
        // Not past a change of orders, which may end the work.
        self.running_ns = lacking_ns.min(self.next_change_ns() - now);
        Op::Run {
            work_ns: self.running_ns,
        }
    }
}
