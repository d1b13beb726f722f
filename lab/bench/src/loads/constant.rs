//! Main work that holds a level: on each CPU, a thread that works its share of every 2 ms.
//!
//! The share is of the thread's own CPU clock, and what a period lacked is made up in the next
//! (up to 20 ms), so the level is kept to a fraction of a percent also while side work disturbs it.
//! The phases of the CPUs are spread over the period, or all of them would work at once.

use std::sync::Arc;

use serde_json::json;

use super::shared_page::SharedPage;
use super::spin::Spin;
use super::{Args, allowed_cpus, pin, serve_commands};
use crate::LabError;
use crate::clock::{monotonic_ns, sleep_until, thread_cpu_ns};

const PERIOD_NS: u64 = 2_000_000;
const DEBT_MAX_NS: u64 = 20_000_000;
const LOOK_NS: u64 = 5_000;

/// `constant --page F [--level PPM] [--threads N]`; later levels come over the page.
pub fn run(page: Arc<SharedPage>, args: &Args) -> Result<(), LabError> {
    let threads: usize = args.number("threads", allowed_cpus().len())?;
    let level_ppm: u32 = args.number("level", 0)?;
    let now = monotonic_ns();
    page.order_level(level_ppm, now, now);
    for index in 0..threads {
        let page = Arc::clone(&page);
        std::thread::spawn(move || {
            pin(index);
            hold_level(&page, index, PERIOD_NS * index as u64 / threads as u64);
        });
    }
    serve_commands(&page, |_| json!({"cpu_ns": page.cpu_ns()}))
}

/// What a thread owes to its level since the level was last changed.
struct Account {
    level_ppm: u32,
    wall_ns: u64,
    cpu_ns: u64,
}

impl Account {
    fn owed_ns(&self, wall_ns: u64) -> u64 {
        // Levels last for minutes: 2^63 ns · 10^6 would need u128, an hour does not: 3.6e12·1e6.
        let span = wall_ns.saturating_sub(self.wall_ns);
        self.cpu_ns + (u128::from(span) * u128::from(self.level_ppm) / 1_000_000) as u64
    }
}

/// Works at the page's level until it says stop.
pub fn hold_level(page: &SharedPage, index: usize, phase_ns: u64) {
    page.check_in();
    let slot = page.slot(index);
    let spin = Spin::calibrated();
    let now = monotonic_ns();
    let mut account = Account {
        level_ppm: page.level_ppm(now),
        wall_ns: now,
        cpu_ns: thread_cpu_ns(),
    };
    let mut period_end = now - now % PERIOD_NS + phase_ns;
    while !page.stopped() {
        let now = monotonic_ns();
        while period_end <= now {
            period_end += PERIOD_NS;
        }
        let level_ppm = page.level_ppm(now);
        let mut cpu = thread_cpu_ns();
        let owed = account.owed_ns(now);
        if level_ppm != account.level_ppm {
            account = Account {
                level_ppm,
                wall_ns: now,
                cpu_ns: cpu,
            };
        } else if owed > cpu + DEBT_MAX_NS {
            account.cpu_ns -= (owed - cpu - DEBT_MAX_NS).min(account.cpu_ns);
        }
        let goal = account.owed_ns(period_end);
        while cpu < goal {
            spin.work(spin.blocks_for(LOOK_NS));
            cpu = thread_cpu_ns();
            slot.publish(cpu, 0);
            if page.level_ppm(monotonic_ns()) != level_ppm || page.stopped() {
                break;
            }
        }
        slot.publish(cpu, 0);
        let now = monotonic_ns();
        if page.level_ppm(now) == level_ppm {
            sleep_until(period_end.min(page.next_change_ns(now).unwrap_or(u64::MAX)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_held_within_a_percent_of_its_own_clock() {
        let page = Arc::new(SharedPage::create().expect("a page"));
        let t = monotonic_ns();
        page.order_level(200_000, t, t);
        let view = Arc::clone(&page);
        let thread = std::thread::spawn(move || hold_level(&view, 0, 0));
        sleep_until(t + 100_000_000);
        let (wall, cpu) = (monotonic_ns(), page.cpu_ns());
        sleep_until(wall + 500_000_000);
        let share = (page.cpu_ns() - cpu) as f64 / (monotonic_ns() - wall) as f64;
        page.stop();
        thread.join().expect("the worker ends");
        // Other tests share the machine, and what was lost is made up only to 20 ms: wide bounds
        // above zero and below the level show the mechanism; accuracy is the lab's to report.
        assert!((0.05..0.23).contains(&share), "held {share}");
    }
}
