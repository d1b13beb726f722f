//! Quotas as the scheduler enforces them: what each limited group was given, and what became of it.

use serde::Serialize;
use tidegate_law::bandwidth::NONE;

use crate::error::SchedExtError;
use crate::intf::{Control, Limit, MainSkel, MirrorAsk};
use crate::object::{self, bytes, delete, get, put};

/// One limited group (or one that was: its counts stay until it is removed). Counts have the
/// meaning of the kernel's `cpu.stat`, times of throttling and burst are sums over CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LimitStat {
    /// The group's cgroup id, which is the inode number of its directory.
    pub cgroup_id: u64,
    /// CPU time a period; None: no limit (any more).
    pub quota_us: Option<u64>,
    pub period_us: u64,
    /// Unused quota that may be carried over.
    pub burst_us: u64,
    /// Periods in which it wanted to run.
    pub nr_periods: u64,
    /// Periods at whose end some CPU was throttled.
    pub nr_throttled: u64,
    pub throttled_us: u64,
    /// Periods in which more than the quota was used.
    pub nr_bursts: u64,
    pub burst_used_us: u64,
    /// Runs of tasks that had not run for so long that the kernel's watchdog would soon have ended
    /// the scheduler.
    pub min_runs: u64,
}

impl From<&Limit> for LimitStat {
    fn from(limit: &Limit) -> LimitStat {
        let (pool, terms) = (&limit.pool, &limit.pool.terms);
        LimitStat {
            cgroup_id: limit.group_id,
            quota_us: (terms.quota_ns != NONE).then_some(terms.quota_ns / 1_000),
            period_us: terms.period_ns / 1_000,
            burst_us: terms.burst_ns / 1_000,
            nr_periods: pool.nr_periods,
            nr_throttled: pool.nr_throttled,
            throttled_us: pool.throttled_ns / 1_000,
            nr_bursts: pool.nr_bursts,
            burst_used_us: pool.burst_ns / 1_000,
            min_runs: limit.min_runs,
        }
    }
}

/// All limited groups. A number may be a period old: it is brought up to date when a task asks.
pub fn all(skel: &MainSkel<'_>) -> Result<Vec<LimitStat>, SchedExtError> {
    let mut found = Vec::new();
    for index in 1..=control(skel)?.limits_used {
        if let Some(limit) = get::<Limit>(&skel.maps.limits, &index.to_ne_bytes())?
            && limit.used == 1
        {
            found.push(LimitStat::from(&limit));
        }
    }
    Ok(found)
}

/// Quotas that are not enforced because the table was full when they came.
pub fn refused(skel: &MainSkel<'_>) -> Result<u32, SchedExtError> {
    Ok(control(skel)?.limits_refused)
}

fn control(skel: &MainSkel<'_>) -> Result<Control, SchedExtError> {
    Ok(get::<Control>(&skel.maps.control, &0_u32.to_ne_bytes())?.unwrap_or_default())
}

/// Says whether a group's quota is a copy of what is enforced otherwise.
pub fn set_mirror(skel: &MainSkel<'_>, cgroup_id: u64, mirror: bool) -> Result<(), SchedExtError> {
    let (mirrors, key) = (&skel.maps.mirrors, cgroup_id.to_ne_bytes());
    if mirror {
        put(mirrors, &key, &1_u32.to_ne_bytes())?;
    } else {
        delete(mirrors, &key)?;
    }
    let ask = MirrorAsk { cgroup_id };
    object::call(&skel.progs.set_mirror, bytes(&ask)).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_that_is_none_is_none() {
        let mut limit = Limit::default();
        limit.pool.terms.quota_ns = 20_000_000;
        limit.pool.terms.period_ns = 100_000_000;
        limit.pool.throttled_ns = 7_500_000;
        let stat = LimitStat::from(&limit);
        assert_eq!(
            (stat.quota_us, stat.period_us, stat.throttled_us),
            (Some(20_000), 100_000, 7_500)
        );
        limit.pool.terms.quota_ns = NONE;
        assert_eq!(LimitStat::from(&limit).quota_us, None);
    }
}
