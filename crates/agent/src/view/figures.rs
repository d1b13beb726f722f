//! Figures as they are shown.

pub(crate) fn cpus(ucpu: u64) -> f64 {
    ucpu as f64 / 1e6
}

pub(crate) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// A share in percent, without the digits that a binary fraction adds.
pub(crate) fn in_percent(ratio: f64) -> f64 {
    (ratio * 1e6).round() / 1e4
}

pub(crate) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
