//! sideloader, of resctl-demo (Meta): once a second,
//! `side = min(side over 5 s, over 1 s) + min(idle over 5 s, over 1 s) − headroom`, at least 5 % of
//! the machine, as a quota with a period of 10 ms. Its freezer (all side work stopped for about 20 s
//! once the margin is gone) is left out: with a floor of 5 % it would only hide the law.

use super::{Counters, Policy, quota_us};

const FLOOR_PCT: f64 = 5.0;
const HISTORY: usize = 5;

/// The law and its five seconds of history.
pub struct Sideloader {
    cpus: usize,
    headroom_pct: f64,
    history: Vec<Counters>,
}

impl Sideloader {
    /// For a machine of `cpus` CPUs.
    pub fn new(cpus: usize, headroom_pct: f64) -> Self {
        Sideloader {
            cpus,
            headroom_pct,
            history: Vec::new(),
        }
    }

    fn shares(&self, from: &Counters, to: &Counters) -> (f64, f64) {
        let total = (to.total_ticks.saturating_sub(from.total_ticks)).max(1) as f64;
        let idle = 100.0 * to.idle_ticks.saturating_sub(from.idle_ticks) as f64 / total;
        let side = 100.0 * to.side_ns.saturating_sub(from.side_ns) as f64 / (total * 1e7);
        (side.min(100.0), idle.min(100.0))
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
        1_000_000_000
    }

    fn tick(&mut self, counters: Counters) -> Option<u64> {
        self.history.push(counters);
        if self.history.len() > HISTORY + 1 {
            self.history.remove(0);
        }
        let newest = self.history.len() - 1;
        if newest == 0 {
            return None;
        }
        let (side_long, idle_long) = self.shares(&self.history[0], &counters);
        let (side_last, idle_last) = self.shares(&self.history[newest - 1], &counters);
        let side = side_long.min(side_last) + idle_long.min(idle_last) - self.headroom_pct;
        Some(quota_us(side.max(FLOOR_PCT), self.cpus, self.period_us()))
    }

    fn allowance_pct(&self, busy_pct: f64) -> f64 {
        (100.0 - self.headroom_pct - busy_pct).max(FLOOR_PCT)
    }

    fn prime(&mut self, busy_pct: f64, now: Counters) -> u64 {
        let side = self.allowance_pct(busy_pct);
        let idle = (100.0 - busy_pct - side).max(0.0);
        let ticks = 100 * self.cpus as u64;
        self.history = (0..=HISTORY as u64)
            .rev()
            .map(|ago| Counters {
                idle_ticks: now
                    .idle_ticks
                    .saturating_sub((ago * ticks) * idle as u64 / 100),
                total_ticks: now.total_ticks.saturating_sub(ago * ticks),
                side_ns: now
                    .side_ns
                    .saturating_sub((ago as f64 * self.cpus as f64 * 1e7 * side) as u64),
            })
            .collect();
        quota_us(side, self.cpus, self.period_us())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{advance, settle};
    use super::*;

    #[test]
    fn it_settles_at_its_allowance() {
        for (main, want) in [(10.0, 60.0), (40.0, 30.0), (80.0, 5.0)] {
            let got = settle(&mut Sideloader::new(2, 30.0), main, 30.0);
            assert!((got - want).abs() < 1.5, "main {main}: {got}");
        }
    }

    #[test]
    fn a_primed_law_is_in_its_steady_state() {
        let mut law = Sideloader::new(2, 30.0);
        let c = advance(Counters::default(), 1000.0, 10.0, 60.0);
        assert_eq!(law.prime(10.0, c), 12_000);
        let next = law.tick(advance(c, 1.0, 10.0, 60.0)).expect("a quota");
        assert!((11_800..=12_200).contains(&next), "{next}");
    }

    #[test]
    fn a_step_takes_it_a_full_second_of_evidence() {
        let mut law = Sideloader::new(2, 30.0);
        let c = advance(Counters::default(), 1000.0, 10.0, 60.0);
        law.prime(10.0, c);
        // Half of the second before the tick was still quiet; side lost to main's weight.
        let c = advance(advance(c, 0.5, 10.0, 60.0), 0.5, 80.0, 20.0);
        let first = law.tick(c).expect("a quota");
        assert!(first > 4_000, "half a second of evidence gives {first}");
        let second = law.tick(advance(c, 1.0, 80.0, 20.0)).expect("a quota");
        assert_eq!(second, 1_000, "the floor of 5 % of two CPUs");
    }
}
