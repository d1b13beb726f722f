//! koordlet's CPU suppress (Koordinator; `qosmanager/plugins/cpusuppress`): `capacity · 65 % − use
//! of all that is not best effort`, where usage is collected once a second and acted on once a
//! second, half a second later.
//!
//! It is simulated by quota (period of 100 ms, at least 2 ms): changes under 1 % of the machine are
//! skipped, and a raise is at most 10 % of the machine a step. Its other form, by cpuset, is not
//! simulated.

use super::{ALL_PPM, Counters, Order, Policy, quota_us};

const THRESHOLD_PPM: u64 = 650_000;
const QUOTA_MIN_US: u64 = 2_000;
const SKIP_PPM: u64 = 10_000;
const RAISE_MAX_PPM: u64 = 100_000;

/// The law: calls alternate between collecting and acting.
pub struct Koordlet {
    cpus: u32,
    act_next: bool,
    collected: Option<Counters>,
    busy_ppm: Option<u64>,
    quota_us: Option<u64>,
}

impl Koordlet {
    /// With its default threshold, for a machine of `cpus` CPUs.
    pub fn new(cpus: u32) -> Self {
        Koordlet {
            cpus,
            act_next: false,
            collected: None,
            busy_ppm: None,
            quota_us: None,
        }
    }

    fn part_us(&self, ppm: u64) -> u64 {
        ppm * u64::from(self.cpus) * self.period_us() / ALL_PPM
    }

    fn collect(&mut self, now: Counters) {
        if let Some(last) = self.collected.replace(now) {
            let window = now.since(&last);
            let others_ppm = window.ppm(window.idle_ns) + window.ppm(window.side_ns);
            self.busy_ppm = Some(ALL_PPM.saturating_sub(others_ppm));
        }
    }

    fn wanted_quota_us(&self, busy_ppm: u64) -> u64 {
        quota_us(
            THRESHOLD_PPM.saturating_sub(busy_ppm),
            self.cpus,
            self.period_us(),
        )
        .max(QUOTA_MIN_US)
    }

    fn act(&mut self, busy_ppm: u64) -> Option<Order> {
        let wanted = self.wanted_quota_us(busy_ppm);
        let quota = match self.quota_us {
            None => wanted,
            Some(old) => {
                let small = wanted.abs_diff(old) < self.part_us(SKIP_PPM) && wanted > QUOTA_MIN_US;
                if small || wanted == old {
                    return None;
                }
                wanted.min(old + self.part_us(RAISE_MAX_PPM))
            }
        };
        self.quota_us = Some(quota);
        Some(Order::Quota(quota))
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

    fn tick(&mut self, counters: Counters) -> Option<Order> {
        self.act_next = !self.act_next;
        if self.act_next {
            self.collect(counters);
            return None;
        }
        self.act(self.busy_ppm?)
    }

    fn allowance_ppm(&self, busy_ppm: u64) -> u64 {
        let floor_ppm = QUOTA_MIN_US * ALL_PPM / (self.period_us() * u64::from(self.cpus));
        THRESHOLD_PPM.saturating_sub(busy_ppm).max(floor_ppm)
    }

    fn prime(&mut self, busy_ppm: u64, now: Counters) -> Order {
        self.collected = Some(now);
        self.busy_ppm = Some(busy_ppm);
        let quota = self.wanted_quota_us(busy_ppm);
        self.quota_us = Some(quota);
        Order::Quota(quota)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raises_are_slow_and_cuts_are_not() {
        let mut law = Koordlet::new(2);
        law.prime(800_000, Counters::default());
        assert_eq!(law.act(100_000), Some(Order::Quota(2_000 + 20_000)));
        assert_eq!(law.act(100_000), Some(Order::Quota(42_000)));
        assert_eq!(law.act(800_000), Some(Order::Quota(2_000)));
        assert_eq!(law.act(800_000), None, "nothing to change");
    }
}
