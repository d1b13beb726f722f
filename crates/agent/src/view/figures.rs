//! Figures as they are shown.

pub(crate) fn cpus(ucpu: u64) -> f64 {
    ucpu as f64 / 1e6
}

pub(crate) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// `1 job`, `2 jobs`.
pub(crate) fn count(number: u64, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

/// A share in percent, without the digits that a binary fraction adds.
pub(crate) fn in_percent(ratio: f64) -> f64 {
    (ratio * 1e6).round() / 1e4
}

pub(crate) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        let jobs = [0, 1, 2].map(|number| count(number, "job"));
        assert_eq!(jobs, ["0 jobs", "1 job", "2 jobs"]);
    }
}
