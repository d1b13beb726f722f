//! Katalyst's canonical provision policy (ByteDance; `sysadvisor/plugin/qosaware/resource/cpu`):
//! main is to have `max(1.25 · usage, load over 1 min, over 5 min) + 4` CPUs, rounded up to whole
//! cores, raised by at most 10 CPUs a step and lowered by at most 2 every 30 s; side work has the
//! others, at least 4 CPUs. The two are exclusive pools (cpusets). Metrics are gathered every 5 s
//! and acted on every 5 s; where the two meet is chance, here half a period later.
//!
//! On machines under 8 CPUs, for which it is not meant, the least pool is half of the machine and
//! the reserve a quarter.

use super::{ALL_PPM, Counters, Order, Policy};

const PERIOD_NS: u64 = 5_000_000_000;
const RESERVE_CPUS: u64 = 4;
const SIDE_CPUS_MIN: u64 = 4;
const UP_MAX_CPUS: u64 = 10;
const DOWN_MAX_CPUS: u64 = 2;
const DOWN_AFTER_NS: u64 = 30_000_000_000;
/// The kernel's weights of a load average that is refreshed every 5 s, of 2048
/// (`include/linux/sched/loadavg.h`).
const EXP_1_MIN: u64 = 1884;
const EXP_5_MIN: u64 = 2014;

/// The law, its load averages and its regulator.
pub struct Katalyst {
    cpus: u64,
    threads_per_core: u64,
    act_next: bool,
    collected: Option<Counters>,
    /// Millionths of a CPU.
    usage_ucpu: Option<u64>,
    load_1_ucpu: u64,
    load_5_ucpu: u64,
    main_cpus: Option<u64>,
    now_ns: u64,
    lowered_ns: Option<u64>,
}

impl Katalyst {
    /// For a machine of `cpus` CPUs, `threads_per_core` of them to a core.
    pub fn new(cpus: u32, threads_per_core: u32) -> Self {
        Katalyst {
            cpus: u64::from(cpus),
            threads_per_core: u64::from(threads_per_core.max(1)),
            act_next: false,
            collected: None,
            usage_ucpu: None,
            load_1_ucpu: 0,
            load_5_ucpu: 0,
            main_cpus: None,
            now_ns: 0,
            lowered_ns: None,
        }
    }

    fn side_min(&self) -> u64 {
        SIDE_CPUS_MIN.min(self.cpus / 2).max(1)
    }

    /// What main should have in whole cores, before the regulator.
    fn required(&self, estimate_ucpu: u64) -> u64 {
        let reserve = RESERVE_CPUS.min(self.cpus / 4);
        let cpus = estimate_ucpu.div_ceil(ALL_PPM) + reserve;
        let aligned = cpus.next_multiple_of(self.threads_per_core);
        aligned.clamp(1, self.cpus - self.side_min())
    }

    fn estimate_ucpu(&self, usage_ucpu: u64) -> u64 {
        (usage_ucpu * 5 / 4)
            .max(self.load_1_ucpu)
            .max(self.load_5_ucpu)
    }

    fn collect(&mut self, now: Counters) {
        let Some(last) = self.collected.replace(now) else {
            return;
        };
        let window = now.since(&last);
        let main_ns = window
            .total_ns
            .saturating_sub(window.idle_ns + window.side_ns);
        let wall_ns = (window.total_ns / self.cpus).max(1);
        let rate = |ns: u64| (u128::from(ns) * u128::from(ALL_PPM) / u128::from(wall_ns)) as u64;
        self.usage_ucpu = Some(rate(main_ns));
        let active_ucpu = rate(main_ns + window.main_wait_ns);
        for (load, exp) in [
            (&mut self.load_1_ucpu, EXP_1_MIN),
            (&mut self.load_5_ucpu, EXP_5_MIN),
        ] {
            *load = (*load * exp + active_ucpu * (2048 - exp)) / 2048;
        }
    }

    fn act(&mut self) -> Option<Order> {
        let wanted = self.required(self.estimate_ucpu(self.usage_ucpu?));
        let main = match self.main_cpus {
            None => wanted,
            Some(old) if wanted < old => {
                let rested = self
                    .lowered_ns
                    .is_none_or(|at| self.now_ns >= at + DOWN_AFTER_NS);
                if !rested {
                    return None;
                }
                self.lowered_ns = Some(self.now_ns);
                wanted.max(old - DOWN_MAX_CPUS)
            }
            Some(old) => wanted.min(old + UP_MAX_CPUS),
        };
        (self.main_cpus.replace(main) != Some(main)).then(|| self.order(main))
    }

    fn order(&self, main_cpus: u64) -> Order {
        Order::Pool((self.cpus - main_cpus) as u32)
    }
}

impl Policy for Katalyst {
    fn name(&self) -> &'static str {
        "Katalyst's law"
    }

    fn period_us(&self) -> u64 {
        100_000
    }

    fn interval_ns(&self) -> u64 {
        PERIOD_NS / 2
    }

    fn tick(&mut self, counters: Counters) -> Option<Order> {
        self.now_ns += self.interval_ns();
        self.act_next = !self.act_next;
        if self.act_next {
            self.collect(counters);
            return None;
        }
        self.act()
    }

    fn allowance_ppm(&self, busy_ppm: u64) -> u64 {
        // The loads of a main that seldom waits are its usage, below 1.25 times that.
        let main = self.required(busy_ppm * self.cpus * 5 / 4);
        (self.cpus - main) * ALL_PPM / self.cpus
    }

    fn prime(&mut self, busy_ppm: u64, now: Counters) -> Order {
        let usage_ucpu = busy_ppm * self.cpus;
        self.collected = Some(now);
        self.usage_ucpu = Some(usage_ucpu);
        (self.load_1_ucpu, self.load_5_ucpu) = (usage_ucpu, usage_ucpu);
        let main = self.required(self.estimate_ucpu(usage_ucpu));
        self.main_cpus = Some(main);
        self.order(main)
    }
}

#[cfg(test)]
mod tests {
    use super::super::plant::advance;
    use super::*;

    #[test]
    fn main_gets_ten_cpus_a_step_and_gives_two_back_every_half_minute() {
        let mut law = Katalyst::new(64, 1);
        law.prime(100_000, Counters::default());
        assert_eq!(law.main_cpus, Some(12));
        let mut c = Counters::default();
        let mut pools = Vec::new();
        for (seconds, main) in [(20, 800_000), (60, 100_000)] {
            for _ in 0..seconds * 2 / 5 {
                c = advance(c, 64, 2_500, main, 0);
                if let Some(Order::Pool(cpus)) = law.tick(c) {
                    pools.push(cpus);
                }
            }
        }
        assert_eq!(pools[..4], [42, 32, 22, 12], "ten at a time: {pools:?}");
        assert_eq!(pools[4..], [14, 16], "two at a time: {pools:?}");
    }

    #[test]
    fn a_small_machine_has_both_pools() {
        for cpus in [2, 4, 8] {
            let mut law = Katalyst::new(cpus, 1);
            for busy in [0, 500_000, 1_000_000] {
                let Order::Pool(side) = law.prime(busy, Counters::default()) else {
                    panic!("a pool")
                };
                assert!(side >= 1 && side < cpus, "{side} of {cpus} CPUs");
            }
        }
    }
}
