//! How long main may take, in the words of a user: `p99<5ms` of run delay, `reported<80ms` of a
//! figure that main's operator reports.

use std::fmt;

use crate::refusal::Refusal;
use crate::units::TimeSpan;
use crate::values::Value;

/// A bound on run delay (the time from being able to run to running), or on a latency that is
/// reported from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    #[default]
    None,
    /// All but this share of runs wait for no longer than this.
    Delay {
        /// The share that may be late: 10,000 for p99.
        late_ppm: u32,
        span: TimeSpan,
    },
    /// The latency that is reported (`tidegate report GATE 4.2ms`) stays below this.
    Reported { span: TimeSpan },
}

/// From p50 to p99.99: what is rarer than one run in 10,000 cannot be told from chance in time.
const LATE_MOST_PPM: u32 = 500_000;
const LATE_LEAST_PPM: u32 = 100;

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Objective::None => f.write_str("none"),
            Objective::Delay { late_ppm, span } => {
                let met = 1_000_000 - late_ppm;
                let (whole, part) = (met / 10_000, met % 10_000);
                let part = format!("{part:04}");
                let part = part.trim_end_matches('0');
                let point = if part.is_empty() { "" } else { "." };
                write!(f, "p{whole}{point}{part}<{span}")
            }
            Objective::Reported { span } => write!(f, "reported<{span}"),
        }
    }
}

/// `99.9` as millionths; at most four digits behind the point.
fn percentile_ppm(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 2 || part.len() > 4 || !digits(whole) || !digits(part) {
        return None;
    }
    let part: u32 = format!("{part:0<4}").parse().ok()?;
    whole.parse::<u32>().ok().map(|whole| whole * 10_000 + part)
}

impl Value for Objective {
    fn parse(text: &str) -> Result<Objective, Refusal> {
        Objective::parse(text)
    }
}

impl Objective {
    /// Reads `p99<5ms`, `reported<80ms` or `none`.
    pub fn parse(text: &str) -> Result<Objective, Refusal> {
        if text == "none" {
            return Ok(Objective::None);
        }
        let lacks = || Refusal::new("is neither pNN<TIME nor reported<TIME");
        let (of, time) = text.split_once('<').ok_or_else(lacks)?;
        let span = || TimeSpan::parse(time.trim_start_matches('=').trim());
        if of.trim() == "reported" {
            let span = span()?;
            span.within(TimeSpan::from_nanos(50_000), TimeSpan::from_secs(60))?;
            return Ok(Objective::Reported { span });
        }
        let met = of.trim().strip_prefix('p').ok_or_else(lacks)?;
        let met = percentile_ppm(met).ok_or_else(|| Refusal::new("has no percentile like p99"))?;
        let late_ppm = 1_000_000 - met;
        if !(LATE_LEAST_PPM..=LATE_MOST_PPM).contains(&late_ppm) {
            return Err(Refusal::new("has a percentile outside p50 to p99.99"));
        }
        let span = span()?;
        span.within(TimeSpan::from_nanos(50_000), TimeSpan::from_secs(1))?;
        Ok(Objective::Delay { late_ppm, span })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for (text, late_ppm, us, shown) in [
            ("p99<5ms", 10_000, 5_000, "p99<5ms"),
            ("p99.9 < 250us", 1_000, 250, "p99.9<250us"),
            ("p99.99<=1s", 100, 1_000_000, "p99.99<1s"),
            ("p50<20ms", 500_000, 20_000, "p50<20ms"),
        ] {
            let read = Objective::parse(text).unwrap();
            let span = TimeSpan::from_nanos(us * 1_000);
            assert_eq!(read, Objective::Delay { late_ppm, span }, "{text}");
            assert_eq!(read.to_string(), shown);
            assert_eq!(Objective::parse(shown).unwrap(), read);
        }
    }

    #[test]
    fn a_reported_figure_has_no_percentile() {
        let read = Objective::parse("reported <= 80ms").unwrap();
        let span = TimeSpan::from_nanos(80_000_000);
        assert_eq!(read, Objective::Reported { span });
        assert_eq!(read.to_string(), "reported<80ms");
        for text in ["reported", "reported<", "reported<61s", "reported<9us"] {
            assert!(Objective::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "99<5ms",
            "p99",
            "p99<",
            "p99<5",
            "p<5ms",
            "p100<5ms",
            "p49<5ms",
            "p99.995<5ms",
            "p99.<x",
            "p9x<5ms",
            "p99<10us",
            "p99<2s",
            "p99>5ms",
        ] {
            assert!(Objective::parse(text).is_err(), "{text}");
        }
    }
}
