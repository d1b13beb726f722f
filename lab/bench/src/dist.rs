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

/// The mean of each statistic over several windows; counts are summed. NaN of none.
pub fn mean(windows: &[&Latency]) -> Latency {
    let n = windows.len() as f64;
    let mean = |f: fn(&Latency) -> f64| windows.iter().map(|l| f(l)).sum::<f64>() / n;
    let sum = |f: fn(&Latency) -> u64| windows.iter().map(|l| f(l)).sum();
    Latency {
        offered: sum(|l| l.offered),
        completed: sum(|l| l.completed),
        avg_us: mean(|l| l.avg_us),
        p50_us: mean(|l| l.p50_us),
        p90_us: mean(|l| l.p90_us),
        p99_us: mean(|l| l.p99_us),
        p999_us: mean(|l| l.p999_us),
        max_us: mean(|l| l.max_us),
        cpu_ns: sum(|l| l.cpu_ns),
        window_ns: sum(|l| l.window_ns),
    }
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

/// An empty histogram of nanoseconds, for latencies of a few microseconds: 1 ns to 10 minutes, three digits.
pub fn histogram_ns() -> Histogram<u64> {
    // As above.
    Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("constant bounds are valid")
}

/// Summary of latencies in nanoseconds.
pub fn summarise_ns(h: &Histogram<u64>) -> Latency {
    let ns = summarise(h);
    Latency {
        avg_us: ns.avg_us / 1000.0,
        p50_us: ns.p50_us / 1000.0,
        p90_us: ns.p90_us / 1000.0,
        p99_us: ns.p99_us / 1000.0,
        p999_us: ns.p999_us / 1000.0,
        max_us: ns.max_us / 1000.0,
        ..ns
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
