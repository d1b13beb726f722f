//! Amounts as users write them, to integers and back, exactly.
//!
//! | type | accepts | inside |
//! |---|---|---|
//! | [`Share`] | `30%`, `0.3`, `300‰` | millionths (ppm) of the domain |
//! | [`TimeSpan`] | `250us`, `5ms`, `2s`, `1min`, `1h` | nanoseconds |
//! | [`CpuAmount`] | `1.5cpu`, `150%`, `1500m` | millionths of one CPU |
//!
//! No floating point anywhere: text that is finer than the unit inside is refused, never rounded.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;

const PPM_WHOLE: u64 = 1_000_000;

/// A share of a domain (the machine, or a gate's CPUs).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct Share {
    ppm: u32,
}

impl Share {
    pub const ZERO: Share = Share { ppm: 0 };
    pub const ONE_PERCENT: Share = Share { ppm: 10_000 };
    pub const FIVE_PERCENT: Share = Share { ppm: 50_000 };
    pub const TWENTY_PERCENT: Share = Share { ppm: 200_000 };
    pub const WHOLE: Share = Share {
        ppm: PPM_WHOLE as u32,
    };

    pub const fn from_ppm(ppm: u32) -> Option<Share> {
        if ppm as u64 <= PPM_WHOLE {
            Some(Share { ppm })
        } else {
            None
        }
    }

    pub const fn ppm(self) -> u32 {
        self.ppm
    }

    /// Reads `30%`, `0.3` or `300‰`.
    ///
    /// # Errors
    /// Anything else, above 100 %, below 0, or finer than a millionth. A bare whole number other
    /// than 0 is refused as well: `1` could mean 1 % or everything.
    pub fn parse(text: &str) -> Result<Share, Refusal> {
        let (number, ppm_digits) = if let Some(number) = text.strip_suffix('%') {
            (number, 4)
        } else if let Some(number) = text.strip_suffix('‰') {
            (number, 3)
        } else {
            if is_whole(text) && text.bytes().any(|b| b != b'0') {
                return Err(Refusal::no_unit(text, &["%"]));
            }
            (text, 6)
        };
        let ppm = scaled(number.trim_end(), ppm_digits, "a millionth of the whole")?;
        if ppm > PPM_WHOLE {
            return Err(Refusal::new("is above 100%"));
        }
        // At most 1,000,000 by the line above.
        Ok(Share { ppm: ppm as u32 })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", decimal(u64::from(self.ppm), 4))
    }
}

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct TimeSpan {
    ns: u64,
}

/// Longest suffix first: `ms`, `us` and `ns` end in `s` too. The last field is the power of ten of
/// ns in the unit, for the units that have one.
const TIME_UNITS: &[(&str, u64, u32)] = &[
    ("min", 60, 9),
    ("ns", 1, 0),
    ("us", 1, 3),
    ("µs", 1, 3),
    ("μs", 1, 3),
    ("ms", 1, 6),
    ("s", 1, 9),
    ("h", 3600, 9),
];

const MINUTE_NS: u64 = 60_000_000_000;
const HOUR_NS: u64 = 60 * MINUTE_NS;

impl TimeSpan {
    pub const fn from_nanos(ns: u64) -> TimeSpan {
        TimeSpan { ns }
    }

    /// From milliseconds (as a constant: the product must fit, which is checked at compile time).
    pub const fn from_millis(ms: u32) -> TimeSpan {
        // u32 · 10^6 < 2^52.
        TimeSpan {
            ns: ms as u64 * 1_000_000,
        }
    }

    pub const fn from_secs(s: u32) -> TimeSpan {
        // u32 · 10^9 < 2^62.
        TimeSpan {
            ns: s as u64 * 1_000_000_000,
        }
    }

    pub const fn ns(self) -> u64 {
        self.ns
    }

    pub const fn us(self) -> u64 {
        self.ns / 1_000
    }

    /// Reads a number and its unit.
    ///
    /// # Errors
    /// No unit, an unknown one, not a number, finer than a nanosecond, or more than fits.
    pub fn parse(text: &str) -> Result<TimeSpan, Refusal> {
        for (unit, factor, power) in TIME_UNITS {
            let Some(number) = text.strip_suffix(unit) else {
                continue;
            };
            let ns = scaled(number.trim_end(), *power, "a nanosecond")?;
            let ns = ns.checked_mul(*factor).ok_or_else(too_large)?;
            return Ok(TimeSpan { ns });
        }
        if is_decimal(text) {
            return Err(Refusal::no_unit(text, &["ms", "s"]));
        }
        Err(Refusal::new("is not a time"))
    }

    pub(crate) fn within(self, min: TimeSpan, max: TimeSpan) -> Result<(), Refusal> {
        if self < min {
            Err(Refusal::new(format!("is below {min}")))
        } else if self > max {
            Err(Refusal::new(format!("is above {max}")))
        } else {
            Ok(())
        }
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ns {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{}ns", self.ns),
            1_000..1_000_000 => write!(f, "{}us", decimal(self.ns, 3)),
            1_000_000..1_000_000_000 => write!(f, "{}ms", decimal(self.ns, 6)),
            ns if ns % HOUR_NS == 0 => write!(f, "{}h", ns / HOUR_NS),
            ns if ns % MINUTE_NS == 0 => write!(f, "{}min", ns / MINUTE_NS),
            ns => write!(f, "{}s", decimal(ns, 9)),
        }
    }
}

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct CpuAmount {
    ucpu: u64,
}

impl CpuAmount {
    pub const fn from_ucpu(ucpu: u64) -> CpuAmount {
        CpuAmount { ucpu }
    }

    pub const fn ucpu(self) -> u64 {
        self.ucpu
    }

    /// Reads `1.5cpu` (or `cpus`), `150%` or `150%cpu` (of one CPU), or `1500m`.
    ///
    /// # Errors
    /// No unit, an unknown one, not a number, finer than a millionth of a CPU, or more than fits.
    pub fn parse(text: &str) -> Result<CpuAmount, Refusal> {
        for (unit, power) in [("%cpu", 4), ("cpus", 6), ("cpu", 6), ("%", 4), ("m", 3)] {
            let Some(number) = text.strip_suffix(unit) else {
                continue;
            };
            let ucpu = scaled(number.trim_end(), power, "a millionth of a CPU")?;
            return Ok(CpuAmount { ucpu });
        }
        if is_decimal(text) {
            return Err(Refusal::no_unit(text, &["cpu"]));
        }
        Err(Refusal::new("is not an amount of CPU"))
    }
}

impl fmt::Display for CpuAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}cpu", decimal(self.ucpu, 6))
    }
}

fn is_whole(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

pub(crate) fn is_decimal(text: &str) -> bool {
    match text.split_once('.') {
        None => is_whole(text),
        Some((whole, fraction)) => (whole.is_empty() || is_whole(whole)) && is_whole(fraction),
    }
}

fn too_large() -> Refusal {
    Refusal::new("is too large a number")
}

/// A decimal number times ten to the `power`, exactly: `scaled("1.5", 3)` is 1500.
fn scaled(number: &str, power: u32, finest: &str) -> Result<u64, Refusal> {
    if number.strip_prefix('-').is_some_and(is_decimal) {
        return Err(Refusal::new("is negative"));
    }
    if !is_decimal(number) {
        return Err(Refusal::new("is not a decimal number with a unit"));
    }
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction = fraction.trim_end_matches('0');
    let power = power as usize;
    if fraction.len() > power {
        return Err(Refusal::new(format!("is finer than {finest}")));
    }
    let zeros = std::iter::repeat_n(b'0', power - fraction.len());
    let mut value: u64 = 0;
    for digit in whole.bytes().chain(fraction.bytes()).chain(zeros) {
        value = value
            .checked_mul(10)
            .and_then(|v| v.checked_add(u64::from(digit - b'0')))
            .ok_or_else(too_large)?;
    }
    Ok(value)
}

/// `value / 10^power` in decimal, without trailing zeros: the inverse of [`scaled`].
fn decimal(value: u64, power: u32) -> String {
    let unit = 10_u64.pow(power);
    let (whole, rest) = (value / unit, value % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let fraction = format!("{rest:0width$}", width = power as usize);
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shares_in_each_form() {
        for text in ["30%", "0.3", "300‰", "30.0%", ".3", "0.300000", "30 %"] {
            assert_eq!(Share::parse(text).unwrap().ppm(), 300_000, "{text}");
        }
        assert_eq!(Share::parse("0").unwrap(), Share::ZERO);
        assert_eq!(Share::parse("1.0").unwrap(), Share::WHOLE);
        assert_eq!(Share::parse("0.0001%").unwrap().ppm(), 1);
        for (text, why) in [
            ("30", "did you mean 30%?"),
            ("1", "did you mean 1%?"),
            ("100.0001%", "above 100%"),
            ("-5%", "negative"),
            ("0.00001%", "finer than"),
            ("", "not a decimal"),
            ("%", "not a decimal"),
            ("1e2%", "not a decimal"),
            ("٣٠%", "not a decimal"),
            ("99999999999999999999999%", "too large"),
        ] {
            let refusal = Share::parse(text).unwrap_err();
            assert!(refusal.to_string().contains(why), "{text}: {refusal}");
        }
    }

    #[test]
    fn times_in_each_form() {
        for (text, ns) in [
            ("5ms", 5_000_000),
            ("250us", 250_000),
            ("250µs", 250_000),
            ("2s", 2_000_000_000),
            ("1.5s", 1_500_000_000),
            ("0.000000001s", 1),
            ("1min", 60_000_000_000),
            ("1.5h", 5_400_000_000_000),
        ] {
            assert_eq!(TimeSpan::parse(text).unwrap().ns(), ns, "{text}");
        }
        assert!(
            TimeSpan::parse("5")
                .unwrap_err()
                .to_string()
                .contains("5ms?")
        );
        assert!(
            TimeSpan::parse("0.5ns")
                .unwrap_err()
                .to_string()
                .contains("finer")
        );
        assert!(
            TimeSpan::parse("99999999999h")
                .unwrap_err()
                .to_string()
                .contains("large")
        );
        assert!(TimeSpan::parse("5m").is_err());
    }

    #[test]
    fn cpu_amounts_in_each_form() {
        for text in ["1.5cpu", "150%", "1500m", "1.5cpus", "1.5 cpu"] {
            assert_eq!(CpuAmount::parse(text).unwrap().ucpu(), 1_500_000, "{text}");
        }
        assert!(
            CpuAmount::parse("1.5")
                .unwrap_err()
                .to_string()
                .contains("1.5cpu?")
        );
    }

    proptest! {
        #[test]
        fn shares_survive_format_and_parse(ppm in 0_u32..=1_000_000) {
            let share = Share::from_ppm(ppm).unwrap();
            prop_assert_eq!(Share::parse(&share.to_string()).unwrap(), share);
        }

        #[test]
        fn times_survive_format_and_parse(ns in any::<u64>()) {
            let span = TimeSpan::from_nanos(ns);
            prop_assert_eq!(TimeSpan::parse(&span.to_string()).unwrap(), span);
        }

        #[test]
        fn cpu_amounts_survive_format_and_parse(ucpu in any::<u64>()) {
            let amount = CpuAmount::from_ucpu(ucpu);
            prop_assert_eq!(CpuAmount::parse(&amount.to_string()).unwrap(), amount);
        }

        #[test]
        fn number_like_text_is_read_exactly_or_refused(text in "[0-9]{0,24}\\.?[0-9]{0,24}(%|%cpu|‰|m|cpu|ms|s|h)?") {
            if let Ok(share) = Share::parse(&text) {
                prop_assert_eq!(Share::parse(&share.to_string()).unwrap(), share);
            }
            if let Ok(span) = TimeSpan::parse(&text) {
                prop_assert_eq!(TimeSpan::parse(&span.to_string()).unwrap(), span);
            }
        }
    }
}
