//! Lengths of time on the command line, from a second to a week.

use jiff::SignedDuration;

const WEEK_S: u64 = 7 * 24 * 3_600;

/// Whole seconds of a time as people write it: `10m`, `10min`, `1h 30m`, `7d`.
pub fn seconds(text: &str) -> Result<u64, String> {
    seconds_to(text, WEEK_S, "write a time from 1s to 7d, as in 10m")
}

/// The same of times up to this one.
pub fn seconds_to(text: &str, most_s: u64, remedy: &str) -> Result<u64, String> {
    // Days are no fixed length to the library.
    let days = text
        .strip_suffix('d')
        .and_then(|days| days.parse::<u64>().ok());
    let seconds = match days {
        Some(days) => days.checked_mul(24 * 3_600),
        None => {
            let span: SignedDuration = text
                .parse()
                .map_err(|_| format!("is not a time; {remedy}"))?;
            u64::try_from(span.as_secs()).ok()
        }
    };
    let within = seconds.filter(|seconds| (1..=most_s).contains(seconds));
    within.ok_or_else(|| format!("is out of range; {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, expected) in [
            ("10m", 600),
            ("10min", 600),
            ("90s", 90),
            ("1h 30m", 5_400),
            ("1h", 3_600),
            ("7d", WEEK_S),
        ] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for wrong in [
            "",
            "10",
            "-5s",
            "0s",
            "8d",
            "200h",
            "soon",
            "99999999999999999999d",
        ] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
