//! CPU bandwidth as the kernel's files spell it: quota, period, burst.

use crate::clip;
use serde::{Deserialize, Serialize};

/// The kernel refuses shorter quotas and periods (`kernel/sched/core.c`: `min_cfs_quota_period`).
pub const QUOTA_MIN_US: u64 = 1_000;
/// The kernel refuses longer periods (`max_cfs_quota_period`).
pub const PERIOD_MAX_US: u64 = 1_000_000;
/// What the kernel uses where no period was written.
pub const PERIOD_DEFAULT_US: u64 = 100_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Bandwidth {
    pub quota_us: Option<u64>,
    pub period_us: u64,
    pub burst_us: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bandwidth: {text:?}: {why}; is this file a cgroup's own?")]
pub struct BandwidthError {
    pub text: String,
    pub why: &'static str,
}

impl Default for Bandwidth {
    fn default() -> Self {
        Self::unlimited()
    }
}

impl Bandwidth {
    pub const fn unlimited() -> Self {
        Self {
            quota_us: None,
            period_us: PERIOD_DEFAULT_US,
            burst_us: 0,
        }
    }

    pub const fn limit(quota_us: u64, period_us: u64) -> Self {
        Self {
            quota_us: Some(quota_us),
            period_us,
            burst_us: 0,
        }
    }

    /// The mean rate, in micro-CPUs (rounded down); `None` is no limit.
    pub fn rate_ucpu(&self) -> Option<u64> {
        let quota_us = u128::from(self.quota_us?);
        let rate = quota_us * 1_000_000 / u128::from(self.period_us.max(1));
        Some(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    pub fn rate_no_above(&self, other: &Self) -> bool {
        match (self.quota_us, other.quota_us) {
            (_, None) => true,
            (None, Some(_)) => false,
            // Cross-multiplied: 64-bit factors cannot overflow 128 bits.
            (Some(own), Some(its)) => {
                u128::from(own) * u128::from(other.period_us)
                    <= u128::from(its) * u128::from(self.period_us)
            }
        }
    }

    /// Quota over period as v1 compares a child's with its parent's: 20 bits of fraction
    /// (`to_ratio`); no limit is above all others.
    pub fn ratio(&self) -> u128 {
        self.quota_us.map_or(u128::MAX, |quota_us| {
            (u128::from(quota_us) << 20) / u128::from(self.period_us.max(1))
        })
    }

    /// Reads v2's `cpu.max`: `max 100000` or `5000 100000`. Burst is 0, it stands in another file.
    pub fn parse_max(text: &str) -> Result<Self, BandwidthError> {
        let bad = |why| BandwidthError {
            text: clip(text),
            why,
        };
        let mut words = text.split_ascii_whitespace();
        let quota = words.next().ok_or_else(|| bad("empty"))?;
        let period = words.next().ok_or_else(|| bad("no period"))?;
        if words.next().is_some() {
            return Err(bad("more than two words"));
        }
        let quota_us = match quota {
            "max" => None,
            number => Some(number.parse().map_err(|_| bad("the quota is no number"))?),
        };
        let period_us = period.parse().map_err(|_| bad("the period is no number"))?;
        Ok(Self {
            quota_us,
            period_us,
            burst_us: 0,
        })
    }

    pub fn format_max(&self) -> String {
        match self.quota_us {
            Some(quota_us) => format!("{quota_us} {}", self.period_us),
            None => format!("max {}", self.period_us),
        }
    }

    /// Reads v1's `cpu.cfs_quota_us`: negative is no limit.
    pub fn parse_v1_quota(text: &str) -> Result<Option<u64>, BandwidthError> {
        let bad = |why| BandwidthError {
            text: clip(text),
            why,
        };
        let quota: i64 = text
            .trim()
            .parse()
            .map_err(|_| bad("the quota is no number"))?;
        Ok(u64::try_from(quota).ok())
    }

    pub fn format_v1_quota(&self) -> String {
        self.quota_us
            .map_or_else(|| "-1".to_owned(), |quota_us| quota_us.to_string())
    }

    /// Reads a file of one unsigned number, such as `cpu.cfs_period_us`.
    pub fn parse_us(text: &str) -> Result<u64, BandwidthError> {
        text.trim().parse().map_err(|_| BandwidthError {
            text: clip(text),
            why: "not an unsigned number",
        })
    }
}

impl std::fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.quota_us {
            Some(quota_us) => write!(f, "{quota_us} us per {} us", self.period_us)?,
            None => write!(f, "no limit (period {} us)", self.period_us)?,
        }
        if self.burst_us > 0 {
            write!(f, ", burst {} us", self.burst_us)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        assert_eq!(
            Bandwidth::parse_max("max 100000\n").unwrap(),
            Bandwidth::unlimited()
        );
        assert_eq!(
            Bandwidth::parse_max("5000 10000\n").unwrap(),
            Bandwidth::limit(5000, 10000)
        );
        assert_eq!(Bandwidth::parse_v1_quota("-1\n").unwrap(), None);
        assert_eq!(Bandwidth::parse_v1_quota("1000\n").unwrap(), Some(1000));
    }

    #[test]
    fn refuses_by_name() {
        for text in ["", "max", "max x", "x 1", "1 2 3", "-1 100000"] {
            let message = Bandwidth::parse_max(text).unwrap_err().to_string();
            assert!(message.starts_with("bandwidth: "), "{message}");
        }
    }

    #[test]
    fn rates_are_compared_exactly() {
        let tenth = Bandwidth::limit(10_000, 100_000);
        assert!(Bandwidth::limit(1_000, 10_000).rate_no_above(&tenth));
        assert!(!Bandwidth::limit(1_001, 10_000).rate_no_above(&tenth));
        assert!(tenth.rate_no_above(&Bandwidth::unlimited()));
        assert!(!Bandwidth::unlimited().rate_no_above(&tenth));
    }

    proptest! {
        #[test]
        fn round_trips(quota in proptest::option::of(0..u64::MAX / 2), period_us in 0..u64::MAX) {
            let bandwidth = Bandwidth { quota_us: quota, period_us, burst_us: 0 };
            prop_assert_eq!(Bandwidth::parse_max(&bandwidth.format_max()).unwrap(), bandwidth);
            prop_assert_eq!(Bandwidth::parse_v1_quota(&bandwidth.format_v1_quota()).unwrap(), quota);
        }
    }
}
