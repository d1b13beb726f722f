//! sideloader, of resctl-demo (Meta; `rd-agent/src/misc/sideloader.py`): once a second, `side =
//! min(side over 5 s, over 1 s) + min(idle over 5 s, over 1 s) − headroom`, at least 5 % of the
//! machine, as a quota with a period of 10 ms. Until there are 5 s of history each of the means
//! counts as 0.
//!
//! Its freezer (all side work stopped for 10 to 30 s once the margin over 10 s is under 10 % of the
//! machine) is left out: with it there is no law to look at under load, only side work at a
//! standstill.

use super::{ALL_PPM, Counters, Order, Policy, quota_us};

const FLOOR_PPM: u64 = 50_000;
const HISTORY: usize = 5;
const SECOND_NS: u64 = 1_000_000_000;

/// The law and its five seconds of history.
pub struct Sideloader {
    cpus: u32,
    headroom_ppm: u64,
    history: Vec<Counters>,
}

impl Sideloader {
    /// For a machine of `cpus` CPUs.
    pub fn new(cpus: u32, headroom_ppm: u64) -> Self {
        Sideloader {
            cpus,
            headroom_ppm,
            history: Vec::with_capacity(HISTORY + 2),
        }
    }
}

impl Policy for Sideloader {
    fn name(&self) -> &'static str {
        "sideloader's law"
    }

    fn period_us(&self) -> u64 {
        10_000
    }

    fn interval_ns(&self) -> u64 {
        SECOND_NS
    }

    fn tick(&mut self, counters: Counters) -> Option<Order> {
        self.history.push(counters);
        if self.history.len() > HISTORY + 1 {
            self.history.remove(0);
        }
        let newest = self.history.len() - 1;
        if newest == 0 {
            return None;
        }
        let last = counters.since(&self.history[newest - 1]);
        let (side_ppm, idle_ppm) = if newest == HISTORY {
            let long = counters.since(&self.history[0]);
            (
                long.ppm(long.side_ns).min(last.ppm(last.side_ns)),
                long.ppm(long.idle_ns).min(last.ppm(last.idle_ns)),
            )
        } else {
            // The bug of a fresh start: no history is taken for overload.
            (0, 0)
        };
        let side_ppm = (side_ppm + idle_ppm)
            .saturating_sub(self.headroom_ppm)
            .max(FLOOR_PPM);
        Some(Order::Quota(quota_us(
            side_ppm,
            self.cpus,
            self.period_us(),
        )))
    }

    fn allowance_ppm(&self, busy_ppm: u64) -> u64 {
        ALL_PPM
            .saturating_sub(self.headroom_ppm + busy_ppm)
            .max(FLOOR_PPM)
    }

    fn prime(&mut self, busy_ppm: u64, now: Counters) -> Order {
        let side_ppm = self.allowance_ppm(busy_ppm);
        let idle_ppm = ALL_PPM.saturating_sub(busy_ppm + side_ppm);
        let total_ns = SECOND_NS * u64::from(self.cpus);
        let part_ns = |ppm: u64, ago: u64| ago * (total_ns / ALL_PPM) * ppm;
        self.history = (0..=HISTORY as u64)
            .rev()
            .map(|ago| Counters {
                idle_ns: now.idle_ns.saturating_sub(part_ns(idle_ppm, ago)),
                total_ns: now.total_ns.saturating_sub(part_ns(ALL_PPM, ago)),
                side_ns: now.side_ns.saturating_sub(part_ns(side_ppm, ago)),
                ..now
            })
            .collect();
        Order::Quota(quota_us(side_ppm, self.cpus, self.period_us()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::plant::advance;
    use super::*;

    #[test]
    fn a_fresh_start_is_taken_for_overload() {
        let mut law = Sideloader::new(2, 300_000);
        let mut c = Counters::default();
        let mut quotas = Vec::new();
        for _ in 0..7 {
            c = advance(c, 2, 1_000, 100_000, 50_000);
            quotas.push(law.tick(c));
        }
        let floor = Some(Order::Quota(1_000));
        assert_eq!(quotas[..5], [None, floor, floor, floor, floor]);
        assert_eq!(quotas[5], Some(Order::Quota(12_000)));
    }

    #[test]
    fn a_primed_law_is_in_its_steady_state() {
        let mut law = Sideloader::new(2, 300_000);
        let c = advance(Counters::default(), 2, 1_000_000, 100_000, 600_000);
        assert_eq!(law.prime(100_000, c), Order::Quota(12_000));
        assert_eq!(
            law.tick(advance(c, 2, 1_000, 100_000, 600_000)),
            Some(Order::Quota(12_000))
        );
    }

    #[test]
    fn a_step_takes_it_a_full_second_of_evidence() {
        let mut law = Sideloader::new(2, 300_000);
        let c = advance(Counters::default(), 2, 1_000_000, 100_000, 600_000);
        law.prime(100_000, c);
        // Half of the second before the tick was still quiet; side lost to main's weight.
        let c = advance(c, 2, 500, 100_000, 600_000);
        let c = advance(c, 2, 500, 800_000, 200_000);
        let Some(Order::Quota(first)) = law.tick(c) else {
            panic!("a quota")
        };
        assert!(first > 4_000, "half a second of evidence gives {first}");
        assert_eq!(
            law.tick(advance(c, 2, 1_000, 800_000, 200_000)),
            Some(Order::Quota(1_000)),
            "the floor of 5 % of two CPUs"
        );
    }
}
