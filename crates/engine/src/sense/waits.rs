//! How long main's tasks waited to run: what a sensor adds up, and how to read it.

/// Buckets of the histogram: 0 is below 1024 ns, n is from 2^(n+9) ns on, twice as long each.
pub const WAIT_BUCKETS: usize = 24;

/// Waits to run of one class of tasks since the sensor was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitHistogram {
    pub buckets: [u64; WAIT_BUCKETS],
    pub wait_ns: u64,
}

impl WaitHistogram {
    /// How many were shorter than each bucket's upper end in ns. The last bucket has no end, so it
    /// is left out.
    pub fn below(&self) -> impl Iterator<Item = (u64, u64)> {
        let ends = self.buckets.iter().take(WAIT_BUCKETS - 1).enumerate();
        ends.scan(0, |sum, (at, count)| {
            *sum += count;
            Some((1024 << at, *sum))
        })
    }
}

/// Waits to run, one for each time that a task began to; cumulative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits {
    pub runs: u64,
    /// Of those, after a longer wait than was asked for ([`super::Sensor::set_late_after`]).
    pub late: u64,
    pub wait_ns: u64,
    /// Runs whose wait could not be told; not in `runs`.
    pub unknown: u64,
}

impl Waits {
    /// What came since `before`. Never negative: a counter that went back counts as none.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            runs: self.runs.saturating_sub(before.runs),
            late: self.late.saturating_sub(before.late),
            wait_ns: self.wait_ns.saturating_sub(before.wait_ns),
            unknown: self.unknown.saturating_sub(before.unknown),
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.late += other.late;
        self.wait_ns += other.wait_ns;
        self.unknown += other.unknown;
    }
}

/// The wait that `share_ppm` of all were not longer than, from the histogram: the upper end of the
/// bucket that it lies in, so up to twice too long. 0 where there are none.
pub fn percentile_ns(buckets: &[u64; WAIT_BUCKETS], share_ppm: u32) -> u64 {
    let total: u64 = buckets.iter().sum();
    let rank = (u128::from(total) * u128::from(share_ppm)).div_ceil(1_000_000) as u64;
    let mut seen = 0;
    for (at, count) in buckets.iter().enumerate() {
        seen += count;
        if total > 0 && seen >= rank.max(1) {
            return 1024 << at;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorter_waits_are_added_up_and_the_last_bucket_has_no_end() {
        let mut waits = WaitHistogram::default();
        (waits.buckets[0], waits.buckets[1], waits.buckets[23]) = (2, 3, 7);
        let below: Vec<(u64, u64)> = waits.below().collect();
        assert_eq!(below[..3], [(1024, 2), (2048, 5), (4096, 5)]);
        assert_eq!(below.last(), Some(&(1024 << 22, 5)));
    }

    #[test]
    fn percentiles_are_the_upper_ends_of_their_buckets() {
        let mut buckets = [0; WAIT_BUCKETS];
        assert_eq!(percentile_ns(&buckets, 990_000), 0);
        buckets[0] = 98;
        buckets[12] = 2;
        assert_eq!(percentile_ns(&buckets, 980_000), 1024);
        assert_eq!(percentile_ns(&buckets, 990_000), 1024 << 12);
        assert_eq!(percentile_ns(&buckets, 1_000_000), 1024 << 12);
    }

    #[test]
    fn a_counter_that_went_back_counts_as_none() {
        let waits = |runs, late, wait_ns, unknown| Waits {
            runs,
            late,
            wait_ns,
            unknown,
        };
        let since = waits(12, 1, 9, 1).since(&waits(9, 3, 5, 0));
        assert_eq!(since, waits(3, 0, 4, 1));
    }
}
