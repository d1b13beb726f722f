//! A small quota on many CPUs, of which each needs little now and then: slices of it that expire at the end of a period, and
//! ones that do not (commit de53fd7aedb1).

pub mod host;
mod host_cells;
mod host_report;
pub mod sim;
mod sim_cells;
mod sim_report;

use crate::report::Sample;

/// CPU time in a period.
pub const QUOTA_US: u64 = 10_000;
/// The period.
pub const PERIOD_US: u64 = 100_000;

/// What became of the quota in one run; NaN where it was not measured.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    /// CPU of the busy thread, ms a second.
    pub busy_ms_per_s: f64,
    /// All of the group's CPU over its quota.
    pub used_pct: f64,
    /// Periods in which the group was throttled.
    pub throttled_pct: f64,
    /// Most CPU time above the quota over any number of whole periods, per CPU.
    pub excess_us_per_cpu: f64,
    /// Length of the window.
    pub seconds: f64,
}

impl Used {
    /// Its figures; what was run follows.
    pub fn sample<K>(&self, key: K, round: u32) -> Sample<K> {
        Sample::new(key)
            .with("round", round + 1)
            .with("period_us", PERIOD_US)
            .with("busy_thread_ms_per_s", self.busy_ms_per_s)
            .with("used_pct_of_quota", self.used_pct)
            .with("throttled_periods_pct", self.throttled_pct)
            .with("excess_us_per_cpu", self.excess_us_per_cpu)
            .with("seconds", self.seconds)
    }
}

/// The most that use exceeded the quota over any run of whole periods: the greatest rise of
/// `used − quota · n` from its lowest point so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Excess {
    lowest_ns: i64,
    /// Yet.
    pub most_ns: i64,
}

impl Excess {
    /// At the end of a period, of which there were so many: what was used since the start.
    pub fn period(&mut self, used_ns: u64, periods: u64) {
        // Both are below 2^62 for a century of one CPU.
        let over = used_ns as i64 - (periods * QUOTA_US * 1000) as i64;
        self.most_ns = self.most_ns.max(over - self.lowest_ns);
        self.lowest_ns = self.lowest_ns.min(over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excess_is_over_any_run_of_periods() {
        let mut e = Excess::default();
        let quota = QUOTA_US * 1000;
        // One period unused, then two of the quota and a half each.
        for (n, used) in [(1, 0), (2, quota * 3 / 2), (3, quota * 3)] {
            e.period(used, n);
        }
        assert_eq!(e.most_ns as u64, quota);
    }
}
