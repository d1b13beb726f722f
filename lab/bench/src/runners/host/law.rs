//! A published law as a loop on this machine: exact counters in, a quota for side's group out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_sim::Bandwidth;
use tidegate_sim::policies::{Counters, Order, Policy};

use super::groups::Group;
use crate::loads::shared_page::SharedPage;
use crate::scene::{MS, S};
use crate::{LabError, clock, stop};

/// What the counters hold before the start, so that a law can be primed with a history.
const BEFORE_NS: u64 = 60 * S;

pub struct LawLoop<'a> {
    pub policy: Box<dyn Policy>,
    /// The part of the machine that main takes at the start.
    pub busy_ppm: u64,
    pub cpus: u64,
    pub main: Vec<Arc<SharedPage>>,
    pub side: Vec<Arc<SharedPage>>,
    pub group: &'a Group<'a>,
}

impl LawLoop<'_> {
    /// Steps until `ended` is set.
    pub fn run(mut self, ended: &AtomicBool) -> Result<(), LabError> {
        let began_ns = clock::monotonic_ns();
        let order = self.policy.prime(self.busy_ppm, self.counters(began_ns));
        self.obey(order)?;
        let mut at_ns = began_ns;
        loop {
            at_ns += self.policy.interval_ns();
            while clock::monotonic_ns() < at_ns {
                if ended.load(Ordering::Relaxed) {
                    return Ok(());
                }
                stop::sleep_until(at_ns.min(clock::monotonic_ns() + 20 * MS))?;
            }
            if let Some(order) = self.policy.tick(self.counters(began_ns)) {
                self.obey(order)?;
            }
        }
    }

    fn counters(&self, began_ns: u64) -> Counters {
        let used = |pages: &[Arc<SharedPage>]| pages.iter().map(|page| page.cpu_ns()).sum::<u64>();
        let (main_ns, side_ns) = (used(&self.main), used(&self.side));
        let wall_ns = clock::monotonic_ns() - began_ns;
        let total_ns = self.cpus * (BEFORE_NS + wall_ns);
        Counters {
            idle_ns: total_ns.saturating_sub(main_ns + side_ns),
            total_ns,
            side_ns: BEFORE_NS + side_ns,
            main_wait_ns: 0,
        }
    }

    fn obey(&self, order: Order) -> Result<(), LabError> {
        match order {
            Order::Quota(us) => {
                let limit = Bandwidth::limit(us, self.policy.period_us());
                self.group.set_max(limit)
            }
            Order::Pool(_) => {
                let why = "its CPU sets are simulated only";
                Err(LabError::process(self.policy.name(), why))
            }
        }
    }
}
