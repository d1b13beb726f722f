//! koordlet's CPU suppress by quota (Koordinator): `capacity · 65 % − use of all that is not best
//! effort`, where usage is collected once a second and acted on once a second, half a second later.
//! Quota with a period of 100 ms, at least 2 ms; changes under 1 % of the machine are skipped, and a
//! raise is at most 10 % of the machine a step.

use super::{Counters, Policy, quota_us};

const THRESHOLD_PCT: f64 = 65.0;
const QUOTA_MIN_US: u64 = 2_000;
const SKIP_PCT: f64 = 1.0;
const RAISE_MAX_PCT: f64 = 10.0;

/// The law: calls alternate between collecting and acting.
pub struct Koordlet {
    cpus: usize,
    act_next: bool,
    collected: Option<Counters>,
    busy_pct: Option<f64>,
    quota_us: Option<u64>,
}

impl Koordlet {
    /// For a machine of `cpus` CPUs.
    pub fn new(cpus: usize) -> Self {
        Koordlet {
            cpus,
            act_next: false,
            collected: None,
            busy_pct: None,
            quota_us: None,
        }
    }

    fn points(&self, pct: f64) -> u64 {
        (pct / 100.0 * self.cpus as f64 * self.period_us() as f64) as u64
    }

    fn collect(&mut self, now: Counters) {
        if let Some(last) = self.collected.replace(now) {
            let total = now.total_ticks.saturating_sub(last.total_ticks).max(1) as f64;
            let idle = now.idle_ticks.saturating_sub(last.idle_ticks) as f64 / total;
            let side = now.side_ns.saturating_sub(last.side_ns) as f64 / (total * 1e7);
            self.busy_pct = Some(100.0 * (1.0 - idle - side).clamp(0.0, 1.0));
        }
    }

    fn act(&mut self) -> Option<u64> {
        let wanted = quota_us(
            self.allowance_pct(self.busy_pct?),
            self.cpus,
            self.period_us(),
        );
        let quota = match self.quota_us {
            None => wanted,
            Some(old) => {
                let small = wanted.abs_diff(old) < self.points(SKIP_PCT) && wanted > QUOTA_MIN_US;
                if small || wanted == old {
                    return None;
                }
                wanted.min(old + self.points(RAISE_MAX_PCT))
            }
        };
        self.quota_us = Some(quota);
        Some(quota)
    }
}

impl Policy for Koordlet {
    fn name(&self) -> &'static str {
        "koordlet's law"
    }

    fn period_us(&self) -> u64 {
        100_000
    }

    fn interval_ns(&self) -> u64 {
        500_000_000
    }

    fn tick(&mut self, counters: Counters) -> Option<u64> {
        self.act_next = !self.act_next;
        if self.act_next {
            self.collect(counters);
            return None;
        }
        self.act()
    }

    fn allowance_pct(&self, busy_pct: f64) -> f64 {
        let floor = 100.0 * QUOTA_MIN_US as f64 / (self.period_us() as f64 * self.cpus as f64);
        (THRESHOLD_PCT - busy_pct).max(floor)
    }

    fn prime(&mut self, busy_pct: f64, now: Counters) -> u64 {
        self.collected = Some(now);
        self.busy_pct = Some(busy_pct);
        let quota = quota_us(self.allowance_pct(busy_pct), self.cpus, self.period_us());
        self.quota_us = Some(quota);
        quota
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::settle;
    use super::*;

    #[test]
    fn it_settles_at_its_allowance() {
        for (main, want) in [(10.0, 55.0), (40.0, 25.0), (80.0, 1.0)] {
            let got = settle(&mut Koordlet::new(2), main, 30.0);
            assert!((got - want).abs() < 1.5, "main {main}: {got}");
        }
    }

    #[test]
    fn raises_are_slow_and_cuts_are_not() {
        let mut law = Koordlet::new(2);
        law.prime(80.0, Counters::default());
        law.busy_pct = Some(10.0);
        assert_eq!(law.act(), Some(2_000 + 20_000));
        assert_eq!(law.act(), Some(42_000));
        law.busy_pct = Some(80.0);
        assert_eq!(law.act(), Some(2_000));
        assert_eq!(law.act(), None, "nothing to change");
    }
}
