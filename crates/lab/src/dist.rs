//! Latencies of a window: what a server worker sends back, and what the reports print.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// One window of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Requests that were due in the window.
    pub offered: u64,
    /// Requests that ended in it.
    pub completed: u64,
    /// Mean latency.
    pub avg_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Worst.
    pub max_us: f64,
    /// The workers' own CPU time.
    pub cpu_ns: u64,
    /// How long the window was.
    pub window_ns: u64,
}

/// An empty histogram: 1 µs to 10 minutes, three digits.
pub fn histogram() -> Histogram<u64> {
    // The bounds and the precision are constants that the crate accepts, as the test shows.
    Histogram::new_with_bounds(1, 600_000_000, 3).expect("constant bounds are valid")
}

/// Summary of latencies in microseconds.
pub fn summarise(h: &Histogram<u64>) -> Latency {
    let at = |q: f64| h.value_at_quantile(q) as f64;
    Latency {
        completed: h.len(),
        avg_us: h.mean(),
        p50_us: at(0.50),
        p90_us: at(0.90),
        p99_us: at(0.99),
        p999_us: at(0.999),
        max_us: h.max() as f64,
        ..Latency::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_known_values() {
        let mut h = histogram();
        for us in 1..=1000u64 {
            h.record(us).expect("in bounds");
        }
        let l = summarise(&h);
        assert_eq!(l.completed, 1000);
        assert!((l.avg_us - 500.5).abs() < 1.0);
        assert!((l.p50_us - 500.0).abs() <= 1.0);
        assert!((l.p99_us - 990.0).abs() <= 1.0);
        assert_eq!(l.max_us, 1000.0);
    }
}
