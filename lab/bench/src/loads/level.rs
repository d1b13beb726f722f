//! Main work that holds a level: on each CPU, a thread that works its share of every 2 ms.
//!
//! What a period lacked is made up in the next (up to 20 ms), so the level is kept to a fraction of
//! a percent also while side work disturbs it. The phases of the CPUs are spread over the period,
//! or all of them would work at once. The simulator runs the same [`Level`].

use std::sync::Arc;

use serde_json::json;

use super::shared_page::SharedPage;
use super::spin::Spin;
use super::{pin, serve_commands};
use crate::LabError;
use crate::clock::{monotonic_ns, sleep_until, thread_cpu_ns};

const PERIOD_NS: u64 = 2_000_000;
const DEBT_MAX_NS: u64 = 20_000_000;
/// The least work that is worth a run; less waits for the next period.
const LEAST_NS: u64 = 1_000;
const LOOK_NS: u64 = 5_000;

/// Levels in ppm of a CPU, each from a time on; the first is from 0.
pub type Orders = Arc<[(u64, u32)]>;

/// What the thread of one CPU owes to the level in force.
pub struct Level {
    orders: Orders,
    phase_ns: u64,
    index: usize,
    /// Work done at this level, and debt that was given up.
    done_ns: u64,
}

impl Level {
    pub fn new(orders: &Orders, cpu: u64, cpus: u64) -> Self {
        Level {
            orders: Arc::clone(orders),
            phase_ns: PERIOD_NS * cpu / cpus,
            index: 0,
            done_ns: 0,
        }
    }

    pub fn done(&mut self, ns: u64) {
        self.done_ns += ns;
    }

    fn next_change_ns(&self) -> u64 {
        self.orders.get(self.index + 1).map_or(u64::MAX, |o| o.0)
    }

    fn owed_ns(&self, at_ns: u64) -> u64 {
        let (since_ns, level_ppm) = self.orders.get(self.index).copied().unwrap_or_default();
        // A day at the full level: 8.64e13 · 10^6 < 2^67, so in 128 bits.
        let span = u128::from(at_ns.saturating_sub(since_ns));
        (span * u128::from(level_ppm) / 1_000_000) as u64
    }

    /// The work to do now, and when to ask again once it is done. No work lasts past a change of
    /// level, which may end it.
    pub fn next(&mut self, now_ns: u64) -> (u64, u64) {
        while self.next_change_ns() <= now_ns {
            (self.index, self.done_ns) = (self.index + 1, 0);
        }
        let forgiven_ns = self.owed_ns(now_ns).saturating_sub(DEBT_MAX_NS);
        self.done_ns = self.done_ns.max(forgiven_ns);
        let mut period_end_ns = now_ns - now_ns % PERIOD_NS + self.phase_ns;
        if period_end_ns <= now_ns {
            period_end_ns += PERIOD_NS;
        }
        let until_ns = period_end_ns.min(self.next_change_ns());
        let work_ns = self.owed_ns(until_ns).saturating_sub(self.done_ns);
        match work_ns < LEAST_NS {
            true => (0, until_ns),
            false => (work_ns.min(self.next_change_ns() - now_ns), until_ns),
        }
    }
}

/// Holds levels once it is told `[start_ns, orders]`, in JSON.
pub fn run(page: Arc<SharedPage>, threads: usize) -> Result<(), LabError> {
    let spin = Spin::calibrated();
    (0..threads).for_each(|_| page.check_in());
    serve_commands(&page, |command| {
        if let Ok((start_ns, orders)) = serde_json::from_str::<(u64, Vec<(u64, u32)>)>(command) {
            let orders: Orders = orders.into();
            for index in 0..threads {
                let level = Level::new(&orders, index as u64, threads as u64);
                let page = Arc::clone(&page);
                std::thread::spawn(move || {
                    pin(index);
                    hold(&page, index, spin, start_ns, level);
                });
            }
        }
        json!({"cpu_ns": page.cpu_ns()})
    })
}

/// Holds the level until the page says stop.
fn hold(page: &SharedPage, index: usize, spin: Spin, start_ns: u64, mut level: Level) {
    let slot = page.slot(index);
    let mut cpu_ns = thread_cpu_ns();
    let now_ns = || monotonic_ns().saturating_sub(start_ns);
    while !page.stopped() {
        let (work_ns, until_ns) = level.next(now_ns());
        let from_ns = cpu_ns;
        while cpu_ns - from_ns < work_ns && now_ns() < level.next_change_ns() && !page.stopped() {
            spin.work(spin.blocks_for(LOOK_NS));
            cpu_ns = thread_cpu_ns();
            slot.publish(cpu_ns, 0);
        }
        cpu_ns = thread_cpu_ns();
        slot.publish(cpu_ns, 0);
        level.done(cpu_ns - from_ns);
        sleep_until(start_ns + until_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_holds_until_the_next_one_is_due() {
        let mut level = Level::new(&[(0, 0), (3_000_000, 500_000)].into(), 0, 1);
        assert_eq!(level.next(0), (0, 2_000_000));
        assert_eq!(level.next(2_000_000), (0, 3_000_000));
        assert_eq!(level.next(3_000_000), (500_000, 4_000_000));
        level.done(500_000);
        assert_eq!(level.next(4_000_000), (1_000_000, 6_000_000));
        // Of a debt of 50 ms it makes up 20.
        assert_eq!(level.next(104_000_000), (21_000_000, 106_000_000));
    }
}
