//! Quotas as the scheduler enforces them: what each limited group was given, and what became of it.

use libbpf_rs::{MapHandle, Object};
use serde::Serialize;

use crate::error::ExtError;
use crate::intf::{Control, Limit};
use crate::object::{self, delete, get, map, put};

/// One limited group (or one that was: its counts stay until it is removed). Counts have the meaning of the kernel's
/// `cpu.stat`, times of throttling and burst are sums over CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LimitStat {
    /// The group's cgroup id, which is the inode number of its directory.
    pub cgroup_id: u64,
    /// CPU time a period; None: no limit (any more).
    pub quota_us: Option<u64>,
    /// Length of a period.
    pub period_us: u64,
    /// Unused quota that may be carried over.
    pub burst_us: u64,
    /// Periods in which it wanted to run.
    pub nr_periods: u64,
    /// Periods at whose end some CPU was throttled.
    pub nr_throttled: u64,
    /// How long it was throttled.
    pub throttled_us: u64,
    /// Periods in which more than the quota was used.
    pub nr_bursts: u64,
    /// How much more.
    pub burst_used_us: u64,
    /// Times that a task was throttled.
    pub throttles: u64,
    /// Runs of tasks that had not run for so long that the kernel's watchdog would soon have ended the scheduler.
    pub min_runs: u64,
    /// What they took out of quota: the error of the limit.
    pub min_run_us: u64,
}

impl From<&Limit> for LimitStat {
    fn from(limit: &Limit) -> LimitStat {
        LimitStat {
            cgroup_id: limit.group_id,
            quota_us: (limit.quota_ns != u64::MAX).then_some(limit.quota_ns / 1_000),
            period_us: limit.period_ns / 1_000,
            burst_us: limit.burst_ns / 1_000,
            nr_periods: limit.nr_periods,
            nr_throttled: limit.nr_throttled,
            throttled_us: limit.throttled_ns / 1_000,
            nr_bursts: limit.nr_bursts,
            burst_used_us: limit.burst_used_ns / 1_000,
            throttles: limit.throttles,
            min_runs: limit.min_runs,
            min_run_us: limit.min_run_ns / 1_000,
        }
    }
}

/// The table of limits.
#[derive(Debug)]
pub struct Limits {
    control: MapHandle,
    table: MapHandle,
}

impl Limits {
    pub fn new(object: &Object) -> Result<Limits, ExtError> {
        Ok(Limits {
            control: map(object, "control")?,
            table: map(object, "limits")?,
        })
    }

    /// All limited groups. A number may be a period old: it is brought up to date when a task asks.
    pub fn all(&self) -> Result<Vec<LimitStat>, ExtError> {
        let mut found = Vec::new();
        for index in 1..=self.control()?.limits_used {
            if let Some(limit) = get::<Limit>(&self.table, &index.to_ne_bytes())?
                && limit.used == 1
            {
                found.push(LimitStat::from(&limit));
            }
        }
        Ok(found)
    }

    /// Quotas that are not enforced because the table was full when they came.
    pub fn refused(&self) -> Result<u32, ExtError> {
        Ok(self.control()?.limits_refused)
    }

    fn control(&self) -> Result<Control, ExtError> {
        Ok(get::<Control>(&self.control, &0_u32.to_ne_bytes())?.unwrap_or_default())
    }
}

/// Says whether a group's quota is a copy of what is enforced otherwise.
pub fn set_mirror(object: &mut Object, cgroup_id: u64, mirror: bool) -> Result<(), ExtError> {
    let mirrors = map(object, "mirrors")?;
    let key = cgroup_id.to_ne_bytes();
    if mirror {
        put(&mirrors, &key, &1_u32.to_ne_bytes())?;
    } else {
        delete(&mirrors, &key)?;
    }
    object::call(object, "set_mirror", &key).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_that_is_none_is_none() {
        let limit = Limit {
            quota_ns: 20_000_000,
            period_ns: 100_000_000,
            throttled_ns: 7_500_000,
            ..Limit::default()
        };
        let stat = LimitStat::from(&limit);
        assert_eq!(
            (stat.quota_us, stat.period_us, stat.throttled_us),
            (Some(20_000), 100_000, 7_500)
        );
        let lifted = Limit {
            quota_ns: u64::MAX,
            ..limit
        };
        assert_eq!(LimitStat::from(&lifted).quota_us, None);
    }
}
