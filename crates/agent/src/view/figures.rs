//! Figures as they are shown.

pub(crate) fn cpus(ucpu: u64) -> f64 {
    ucpu as f64 / 1e6
}

pub(crate) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

pub(crate) fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        100.0 * part / whole
    } else {
        0.0
    }
}
