//! Published control laws, written anew from their descriptions as policies that write the quota of
//! a side group, so that a run can put them beside Tidegate on the same machine in the same minutes.
//!
//! Only the law is theirs: side work sits in the same kind of group (cpu.idle) in every arm.

pub mod koordlet;
pub mod sideloader;

/// What a policy may look at, all counted since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Idle and iowait of /proc/stat, hundredths of a second.
    pub idle_ticks: u64,
    /// All of /proc/stat.
    pub total_ticks: u64,
    /// The side group's usage.
    pub side_ns: u64,
}

/// A control law.
pub trait Policy: Send {
    /// Its name in the report.
    fn name(&self) -> &'static str;
    /// The period of the quota that it writes.
    fn period_us(&self) -> u64;
    /// Time between two calls of [`Policy::tick`].
    fn interval_ns(&self) -> u64;
    /// One step: the quota to write, when there is one.
    fn tick(&mut self, counters: Counters) -> Option<u64>;
    /// What side should get, by this law, while main and the rest use `busy_pct` of the machine.
    fn allowance_pct(&self, busy_pct: f64) -> f64;
    /// Puts the law where it would be after long enough at `busy_pct`; returns the quota that it
    /// would have standing. So a step starts from its steady state without waiting for it.
    fn prime(&mut self, busy_pct: f64, counters: Counters) -> u64;
}

/// Percent of the machine as a quota.
pub fn quota_us(pct: f64, cpus: usize, period_us: u64) -> u64 {
    // The kernel's least quota is 1 ms.
    ((pct / 100.0 * cpus as f64 * period_us as f64) as u64).max(1000)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Counters of a two-CPU machine after `seconds` at these shares.
    pub(crate) fn advance(c: Counters, seconds: f64, main_pct: f64, side_pct: f64) -> Counters {
        let total = 200.0 * seconds;
        Counters {
            idle_ticks: c.idle_ticks + (total * (100.0 - main_pct - side_pct) / 100.0) as u64,
            total_ticks: c.total_ticks + total as u64,
            side_ns: c.side_ns + (2e9 * seconds * side_pct / 100.0) as u64,
        }
    }

    /// Lets the policy control a plant that gives side exactly its quota; side's share in the end.
    pub(crate) fn settle(policy: &mut dyn Policy, main_pct: f64, seconds: f64) -> f64 {
        let mut c = Counters::default();
        let mut side = 5.0;
        let step = policy.interval_ns() as f64 / 1e9;
        let mut t = 0.0;
        while t < seconds {
            c = advance(c, step, main_pct, f64::min(side, 100.0 - main_pct));
            if let Some(quota) = policy.tick(c) {
                side = 100.0 * quota as f64 / (policy.period_us() as f64 * 2.0);
            }
            t += step;
        }
        side
    }

    #[test]
    fn quotas_have_a_floor() {
        assert_eq!(quota_us(60.0, 2, 10_000), 12_000);
        assert_eq!(quota_us(0.1, 2, 10_000), 1000);
    }
}
