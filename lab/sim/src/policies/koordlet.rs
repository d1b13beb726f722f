//! koordlet's CPU suppress (Koordinator; `qosmanager/plugins/cpusuppress`): `capacity · 65 % − use of all that is not best
//! effort`, where usage is collected once a second and acted on once a second, half a second later.
//!
//! By quota: period of 100 ms, at least 2 ms; changes under 1 % of the machine are skipped, and a raise is at most 10 % of the
//! machine a step. By cpuset (its default): rounded up to whole CPUs, at least two, a raise of at most 10 % of them.

use super::{ALL_PPM, Counters, Order, Policy, quota_us};

const THRESHOLD_PPM: u64 = 650_000;
const QUOTA_MIN_US: u64 = 2_000;
const CPUS_MIN: u32 = 2;
const SKIP_PPM: u64 = 10_000;
const RAISE_MAX_PPM: u64 = 100_000;

/// The law: calls alternate between collecting and acting.
pub struct Koordlet {
    cpus: u32,
    threshold_ppm: u64,
    by_cpuset: bool,
    act_next: bool,
    collected: Option<Counters>,
    busy_ppm: Option<u64>,
    quota_us: Option<u64>,
    pool: Option<u32>,
}

impl Koordlet {
    /// By quota, with its default threshold, for a machine of `cpus` CPUs.
    pub fn new(cpus: u32) -> Self {
        Koordlet {
            cpus,
            threshold_ppm: THRESHOLD_PPM,
            by_cpuset: false,
            act_next: false,
            collected: None,
            busy_ppm: None,
            quota_us: None,
            pool: None,
        }
    }

    /// By cpuset, as it does by default.
    pub fn by_cpuset(cpus: u32) -> Self {
        Koordlet {
            by_cpuset: true,
            ..Koordlet::new(cpus)
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
        quota_us(self.left_ppm(busy_ppm), self.cpus, self.period_us()).max(QUOTA_MIN_US)
    }

    fn wanted_cpus(&self, busy_ppm: u64) -> u32 {
        let cpus = (self.left_ppm(busy_ppm) * u64::from(self.cpus)).div_ceil(ALL_PPM);
        (cpus as u32).max(CPUS_MIN).min(self.cpus)
    }

    fn left_ppm(&self, busy_ppm: u64) -> u64 {
        self.threshold_ppm.saturating_sub(busy_ppm)
    }

    fn act_by_quota(&mut self, busy_ppm: u64) -> Option<Order> {
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

    fn act_by_cpuset(&mut self, busy_ppm: u64) -> Option<Order> {
        let raise = (u64::from(self.cpus) * RAISE_MAX_PPM).div_ceil(ALL_PPM) as u32;
        let old = self.pool.unwrap_or(self.cpus);
        let pool = self.wanted_cpus(busy_ppm).min(old + raise);
        (self.pool.replace(pool) != Some(pool)).then_some(Order::Pool {
            cpus: pool,
            exclusive: false,
        })
    }
}

impl Policy for Koordlet {
    fn name(&self) -> &'static str {
        if self.by_cpuset {
            "koordlet's law by cpuset"
        } else {
            "koordlet's law"
        }
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
        let busy_ppm = self.busy_ppm?;
        if self.by_cpuset {
            self.act_by_cpuset(busy_ppm)
        } else {
            self.act_by_quota(busy_ppm)
        }
    }

    fn allowance_ppm(&self, busy_ppm: u64) -> u64 {
        let cpus = u64::from(self.cpus);
        if self.by_cpuset {
            return u64::from(self.wanted_cpus(busy_ppm)) * ALL_PPM / cpus;
        }
        let floor_ppm = QUOTA_MIN_US * ALL_PPM / (self.period_us() * cpus);
        self.left_ppm(busy_ppm).max(floor_ppm)
    }

    fn prime(&mut self, busy_ppm: u64, now: Counters) -> Order {
        self.collected = Some(now);
        self.busy_ppm = Some(busy_ppm);
        if self.by_cpuset {
            let cpus = self.wanted_cpus(busy_ppm);
            self.pool = Some(cpus);
            return Order::Pool {
                cpus,
                exclusive: false,
            };
        }
        let quota = self.wanted_quota_us(busy_ppm);
        self.quota_us = Some(quota);
        Order::Quota(quota)
    }
}

#[cfg(test)]
mod tests {
    use super::super::plant::settle;
    use super::*;

    #[test]
    fn it_settles_at_its_allowance() {
        for (main, want) in [(100_000, 550_000), (400_000, 250_000), (800_000, 10_000)] {
            let got = settle(&mut Koordlet::new(2), 2, main, 30);
            assert!(got.abs_diff(want) < 15_000, "main {main}: {got}");
        }
        for (main, cpus) in [(100_000, 9), (400_000, 4), (800_000, 2)] {
            let got = settle(&mut Koordlet::by_cpuset(16), 16, main, 30);
            assert_eq!(got, cpus * 62_500, "main {main}");
        }
    }

    #[test]
    fn raises_are_slow_and_cuts_are_not() {
        let mut law = Koordlet::new(2);
        law.prime(800_000, Counters::default());
        assert_eq!(
            law.act_by_quota(100_000),
            Some(Order::Quota(2_000 + 20_000))
        );
        assert_eq!(law.act_by_quota(100_000), Some(Order::Quota(42_000)));
        assert_eq!(law.act_by_quota(800_000), Some(Order::Quota(2_000)));
        assert_eq!(law.act_by_quota(800_000), None, "nothing to change");
    }
}
