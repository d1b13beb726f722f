//! Control laws that others published, rewritten from their sources as pure functions in integers:
//! counters in, an order out. The lab runs them against a host's files, the simulator through
//! [`PolicyController`] against its machine.
//!
//! Only the law is theirs: side work sits in the same kind of group (cpu.idle) in every arm, and
//! the counters are exact, which is kinder than the ticks that they read in production.

mod driver;
mod katalyst;
mod koordlet;
mod sideloader;

pub use driver::{PolicyController, Sides};
pub use katalyst::Katalyst;
pub use koordlet::Koordlet;
pub use sideloader::Sideloader;

pub const ALL_PPM: u64 = 1_000_000;

/// What a policy may look at, counted since boot where nothing else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Idle time of all CPUs together.
    pub idle_ns: u64,
    /// Time of all CPUs together.
    pub total_ns: u64,
    /// The side group's usage.
    pub side_ns: u64,
    /// How long main's tasks were ready without a CPU, for laws that look at the load average.
    pub main_wait_ns: u64,
}

impl Counters {
    /// The increase of each counter since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            idle_ns: self.idle_ns.saturating_sub(earlier.idle_ns),
            total_ns: self.total_ns.saturating_sub(earlier.total_ns),
            side_ns: self.side_ns.saturating_sub(earlier.side_ns),
            main_wait_ns: self.main_wait_ns.saturating_sub(earlier.main_wait_ns),
        }
    }

    /// `part_ns` of this stretch, of the machine; at most all of it.
    pub fn ppm(&self, part_ns: u64) -> u64 {
        if self.total_ns == 0 {
            return 0;
        }
        // At most 10^6 by the bound, and the product fits 128 bits whatever the counters hold.
        let ppm = u128::from(part_ns) * u128::from(ALL_PPM) / u128::from(self.total_ns);
        ppm.min(u128::from(ALL_PPM)) as u64
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A quota for the side group, in the law's own period.
    Quota(u64),
    /// A cpuset of this many CPUs for the side group; main is confined to the other CPUs.
    Pool(u32),
}

pub trait Policy: Send {
    fn name(&self) -> &'static str;
    /// The period of the quota that it writes.
    fn period_us(&self) -> u64;
    /// Time between two calls of [`Policy::tick`].
    fn interval_ns(&self) -> u64;
    /// One step: what to do, when there is something.
    fn tick(&mut self, counters: Counters) -> Option<Order>;
    /// What side should get, by this law, while main and the rest use `busy_ppm` of the machine.
    fn allowance_ppm(&self, busy_ppm: u64) -> u64;
    /// Puts the law where it would be after long enough at `busy_ppm`; returns what it would have
    /// standing. So a step starts from its steady state without waiting for it.
    fn prime(&mut self, busy_ppm: u64, counters: Counters) -> Order;
}

/// A part of the machine as a quota.
pub fn quota_us(ppm: u64, cpus: u32, period_us: u64) -> u64 {
    // The kernel's least quota is 1 ms. 10^6 · 2^13 CPUs · 10^6 us < 2^54.
    (ppm * u64::from(cpus) * period_us / ALL_PPM).max(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_have_a_floor() {
        assert_eq!(quota_us(600_000, 2, 10_000), 12_000);
        assert_eq!(quota_us(1_000, 2, 10_000), 1_000);
    }

    #[test]
    fn a_part_of_nothing_is_none_and_of_everything_at_most_all() {
        let none = Counters::default();
        assert_eq!(none.ppm(5), 0);
        let some = Counters {
            total_ns: 1_000,
            ..none
        };
        assert_eq!((some.ppm(250), some.ppm(u64::MAX)), (250_000, ALL_PPM));
    }
}

/// A plant for the laws' own tests.
#[cfg(test)]
pub(crate) mod plant {
    use super::*;

    /// Counters of a machine after `ms` at these shares.
    pub(crate) fn advance(
        c: Counters,
        cpus: u32,
        ms: u64,
        main_ppm: u64,
        side_ppm: u64,
    ) -> Counters {
        let total_ns = u64::from(cpus) * ms * 1_000_000;
        let idle_ppm = ALL_PPM - main_ppm - side_ppm;
        Counters {
            idle_ns: c.idle_ns + total_ns / ALL_PPM * idle_ppm,
            total_ns: c.total_ns + total_ns,
            side_ns: c.side_ns + total_ns / ALL_PPM * side_ppm,
            ..c
        }
    }
}
