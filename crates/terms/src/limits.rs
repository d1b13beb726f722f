//! The types of the terms that bound a gate or hint at its urgency: quota, burst, caps, latency.

use std::fmt;

use serde::Serialize;

use crate::refusal::Refusal;
use crate::units::{CpuAmount, Share, TimeSpan, is_decimal};
use crate::values::{Value, shown, words};

/// The kernel refuses quotas below this (`min_cfs_quota_period`).
const QUOTA_MIN: TimeSpan = TimeSpan::from_millis(1);
/// As many CPUs as a kernel can have, in parts per thousand of one.
const PPT_MAX: u64 = 8192 * 1000;
const UCPU_PER_PPT: u64 = 1_000;

/// CPU time that a gate may use in each period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Quota {
    #[default]
    None,
    /// This much in each period, whatever the period is.
    Time(TimeSpan),
    Cpus(CpuAmount),
}

impl Quota {
    /// What it comes to in a period; `None` for no limit. Rounded down to whole microseconds, as
    /// the kernel's files have it.
    pub fn us(self, period: TimeSpan) -> Option<u64> {
        match self {
            Quota::None => None,
            Quota::Time(span) => Some(span.us()),
            Quota::Cpus(cpus) => {
                let us = u128::from(cpus.ucpu()) * u128::from(period.us()) / 1_000_000;
                Some(u64::try_from(us).unwrap_or(u64::MAX))
            }
        }
    }
}

shown!(Quota: None = "none"; Time, Cpus);

impl Value for Quota {
    fn parse(text: &str) -> Result<Quota, Refusal> {
        // `max` and `-1` are the kernel's: of cpu.max, and of cpu.cfs_quota_us.
        if matches!(text, "none" | "max" | "-1") {
            return Ok(Quota::None);
        }
        if is_decimal(text) {
            // Half a CPU, or microseconds as the kernel's files have them.
            let units: &[&str] = match text.parse::<u32>() {
                Ok(0..1_000) => &["ms", "us"],
                Ok(_) => &["us", "ms"],
                Err(_) => &["cpu", "ms"],
            };
            return Err(Refusal::no_unit(text, units));
        }
        if let Ok(cpus) = CpuAmount::parse(text) {
            if cpus.ucpu() == 0 {
                return Err(Refusal::new("would stop the work for good"));
            }
            if cpus.ucpu() / UCPU_PER_PPT > PPT_MAX {
                return Err(Refusal::new("is above 8192 CPUs"));
            }
            return Ok(Quota::Cpus(cpus));
        }
        let span = TimeSpan::parse(text)?;
        span.within(QUOTA_MIN, TimeSpan::from_secs(8192))?;
        Ok(Quota::Time(span))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Burst {
    Of(TimeSpan),
    /// The quota, or as much as the limits of the groups above leave.
    Max,
}

impl Burst {
    pub const NONE: Burst = Burst::Of(TimeSpan::from_nanos(0));
}

shown!(Burst: Max = "max"; Of);

impl Value for Burst {
    fn parse(text: &str) -> Result<Burst, Refusal> {
        match text {
            "max" => Ok(Burst::Max),
            "0" | "none" => Ok(Burst::NONE),
            time => TimeSpan::parse(time).map(Burst::Of),
        }
    }
}

/// A rate cap in parts per thousand of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cap {
    /// At most this many parts per thousand of one CPU.
    Ppt(u32),
    #[default]
    None,
}

impl Cap {
    /// In parts per thousand of one CPU; `None` for no cap.
    pub const fn ppt(self) -> Option<u32> {
        match self {
            Cap::None => None,
            Cap::Ppt(ppt) => Some(ppt),
        }
    }

    pub(crate) fn at_least_one(&self) -> Result<(), Refusal> {
        match self {
            Cap::Ppt(0) => Err(Refusal::new("would stop the work for good")),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cap::None => f.write_str("none"),
            Cap::Ppt(ppt) => CpuAmount::from_ucpu(u64::from(*ppt) * UCPU_PER_PPT).fmt(f),
        }
    }
}

impl Value for Cap {
    fn parse(text: &str) -> Result<Cap, Refusal> {
        if text == "none" {
            return Ok(Cap::None);
        }
        // Parts per thousand above the whole are no share, and `0.2` is one.
        let ucpu = match text.strip_suffix('‰') {
            Some(number) => CpuAmount::parse(&format!("{}m", number.trim_end()))
                .map_err(|_| Refusal::new("is not an amount of CPU"))?
                .ucpu(),
            None if text.ends_with('m') || text.contains("cpu") || text.ends_with('%') => {
                CpuAmount::parse(text)?.ucpu()
            }
            None => match Share::parse(text) {
                Ok(share) => u64::from(share.ppm()),
                Err(_) if is_decimal(text) => {
                    let units: &[&str] = match text.parse::<u32>() {
                        Ok(10..) => &["m", "cpu"],
                        _ => &["cpu", "m"],
                    };
                    return Err(Refusal::no_unit(text, units));
                }
                Err(why) => return Err(why),
            },
        };
        if ucpu % UCPU_PER_PPT != 0 {
            return Err(Refusal::new("is finer than 0.001cpu"));
        }
        match u32::try_from(ucpu / UCPU_PER_PPT) {
            Ok(ppt) if u64::from(ppt) <= PPT_MAX => Ok(Cap::Ppt(ppt)),
            _ => Err(Refusal::new("is above 8192 CPUs")),
        }
    }
}

/// What one cap covers; the numbers are those of the sched_ext engine's programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CapScope {
    /// Each task has a bucket of its own at the same rate, and so has each that it forks (seed
    /// 004's meaning).
    Task = 2,
    Process = 1,
    /// All of the gate share one bucket, which no fork storm can multiply.
    #[default]
    Group = 0,
}

words!(CapScope, "is not a scope": Task = "task", Process = "process", Group = "group");

/// How urgent a wakeup is: −20 the most, 19 the least (seed 001's `latency_nice`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Latency(i8);

impl Latency {
    /// From −20 to 19.
    pub const fn hint(self) -> i8 {
        self.0
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Value for Latency {
    fn parse(text: &str) -> Result<Latency, Refusal> {
        // A person may write the minus sign of a typesetter.
        let plain = text.replacen('−', "-", 1);
        let number = plain
            .parse::<i64>()
            .map_err(|_| Refusal::new("is not a whole number"))?;
        match i8::try_from(number) {
            Ok(hint @ -20..=19) => Ok(Latency(hint)),
            _ if number < 0 => Err(Refusal::new("is below -20")),
            _ => Err(Refusal::new("is above 19")),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Switch(pub bool);

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { "yes" } else { "no" })
    }
}

impl Value for Switch {
    fn parse(text: &str) -> Result<Switch, Refusal> {
        match text {
            "yes" | "true" | "on" => Ok(Switch(true)),
            "no" | "false" | "off" => Ok(Switch(false)),
            _ => Err(Refusal::new("is neither yes nor no")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn why<T: Value>(text: &str) -> String {
        match T::parse(text) {
            Ok(value) => panic!("{text} was read as {value}"),
            Err(why) => why.to_string(),
        }
    }

    #[test]
    fn quotas_are_times_or_cpus() {
        let period = TimeSpan::from_millis(100);
        for text in ["50ms", "0.5cpu", "50%", "50%cpu", "500m"] {
            assert_eq!(
                Quota::parse(text).unwrap().us(period),
                Some(50_000),
                "{text}"
            );
        }
        assert_eq!(Quota::parse("none").unwrap().us(period), None);
        assert!(why::<Quota>("0.5ms").contains("below 1ms"));
        assert!(why::<Quota>("0cpu").contains("stop the work"));
        assert!(why::<Quota>("50").contains("no unit"));
    }

    #[test]
    fn caps_in_each_form() {
        for text in ["200‰", "20%", "20%cpu", "0.2", "200m", "0.2cpu"] {
            assert_eq!(Cap::parse(text).unwrap(), Cap::Ppt(200), "{text}");
        }
        assert_eq!(Cap::parse("2500‰").unwrap(), Cap::Ppt(2500));
        assert_eq!(Cap::parse("250%").unwrap(), Cap::Ppt(2500));
        assert_eq!(Cap::parse("0").unwrap(), Cap::Ppt(0));
        assert!(why::<Cap>("200").contains("did you mean 200m?"));
        assert!(why::<Cap>("1").contains("did you mean 1cpu?"));
        assert!(why::<Cap>("1.5").contains("did you mean 1.5cpu?"));
        assert!(why::<Cap>("0.5‰").contains("finer"));
        assert!(why::<Cap>("-1‰").contains("amount of CPU"));
        assert!(why::<Cap>("99999999‰").contains("8192"));
    }

    #[test]
    fn hints_stay_in_the_seeds_range() {
        assert_eq!(Latency::parse("-20").unwrap().hint(), -20);
        assert_eq!(Latency::parse("−5").unwrap().hint(), -5);
        assert_eq!(Latency::parse("19").unwrap().hint(), 19);
        assert!(why::<Latency>("20").contains("above 19"));
        assert!(why::<Latency>("-21").contains("below -20"));
        assert!(why::<Latency>("5ms").contains("whole number"));
    }

    proptest! {
        #[test]
        fn what_is_shown_can_be_read_again(ppt in 0u32..=8_192_000, ns in 1_000_000u64..1_000_000_000_000, ucpu in 1u64..8_192_000_000) {
            prop_assert_eq!(Cap::parse(&Cap::Ppt(ppt).to_string()).unwrap(), Cap::Ppt(ppt));
            for quota in [Quota::Time(TimeSpan::from_nanos(ns)), Quota::Cpus(CpuAmount::from_ucpu(ucpu))] {
                prop_assert_eq!(Quota::parse(&quota.to_string()).unwrap(), quota);
            }
            let burst = Burst::Of(TimeSpan::from_nanos(ns));
            for burst in [burst, Burst::Max] {
                prop_assert_eq!(Burst::parse(&burst.to_string()).unwrap(), burst);
            }
        }
    }
}
