//! Times in a log-linear histogram: integers in, integers out, bounded memory.
//!
//! A value is kept to three significant digits ([`Histogram::percentile_ns`] is at most 0.1 % above
//! the value that was recorded); count, sum, least and greatest are exact. Percentiles are asked
//! for in millionths and answered by rank, so that no rounding of a float decides which value is
//! shown.

use hdrhistogram::Histogram as Buckets;

/// How far above a recorded value a reported one may lie, in millionths.
#[cfg(test)]
const ERROR_PPM: u64 = 1_000;

#[derive(Clone, Debug)]
pub struct Histogram {
    /// None until the first value: most series of a large machine stay empty.
    buckets: Option<Buckets<u64>>,
    count: u64,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

impl Histogram {
    pub fn new() -> Histogram {
        Histogram {
            buckets: None,
            count: 0,
            sum_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
        }
    }

    pub fn record(&mut self, value_ns: u64) {
        add(self.buckets.get_or_insert_with(fresh), value_ns, 1);
        self.count += 1;
        // 2^64 values of 2^64 each fit.
        self.sum_ns += u128::from(value_ns);
        self.min_ns = self.min_ns.min(value_ns);
        self.max_ns = self.max_ns.max(value_ns);
    }

    /// Adds all that another one counted.
    pub fn merge(&mut self, other: &Histogram) {
        let Some(theirs) = &other.buckets else {
            return;
        };
        let ours = self.buckets.get_or_insert_with(fresh);
        for bucket in theirs.iter_recorded() {
            add(ours, bucket.value_iterated_to(), bucket.count_at_value());
        }
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// Their mean, rounded down; 0 when there are none.
    pub fn mean_ns(&self) -> u64 {
        // The mean of u64 values is one.
        (self.sum_ns / u128::from(self.count.max(1))) as u64
    }

    /// The least; 0 when there are none.
    pub fn min_ns(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min_ns }
    }

    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The value that `ppm` millionths of all values do not exceed (500 000 is the median); 0 when
    /// there are none.
    pub fn percentile_ns(&self, ppm: u32) -> u64 {
        let Some(buckets) = &self.buckets else {
            return 0;
        };
        // The rank is rounded up, at least the first: the 50th percentile of two values is the
        // first of them.
        let rank = (u128::from(self.count) * u128::from(ppm.min(1_000_000))).div_ceil(1_000_000);
        let rank = rank.max(1);
        let mut seen = 0_u128;
        for bucket in buckets.iter_recorded() {
            seen += u128::from(bucket.count_at_value());
            if seen >= rank {
                return bucket.value_iterated_to().clamp(self.min_ns, self.max_ns);
            }
        }
        self.max_ns
    }
}

fn fresh() -> Buckets<u64> {
    let mut buckets = match Buckets::new(3) {
        Ok(buckets) => buckets,
        // The library refuses only more than five digits.
        Err(error) => unreachable!("a histogram of three digits: {error}"),
    };
    buckets.auto(true);
    buckets
}

fn add(buckets: &mut Buckets<u64>, value_ns: u64, times: u64) {
    // A histogram that resizes covers every u64; only one of a fixed range refuses.
    if let Err(error) = buckets.record_n(value_ns, times) {
        unreachable!("{value_ns} in a histogram of every u64: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The slow reference: the value of that rank in the sorted list.
    fn exact(sorted: &[u64], ppm: u32) -> u64 {
        let rank = (sorted.len() as u128 * u128::from(ppm)).div_ceil(1_000_000);
        sorted[rank.max(1) as usize - 1]
    }

    #[test]
    fn empty_is_all_zero() {
        let empty = Histogram::new();
        assert_eq!((empty.count(), empty.mean_ns(), empty.min_ns()), (0, 0, 0));
        assert_eq!((empty.max_ns(), empty.percentile_ns(990_000)), (0, 0));
    }

    proptest! {
        #[test]
        fn percentiles_are_within_the_bound(
            values in prop::collection::vec(any::<u64>().prop_flat_map(|v| (0..64_u32).prop_map(move |s| v >> s)), 1..200),
            ppm in 0_u32..=1_000_000,
        ) {
            let mut hist = Histogram::new();
            values.iter().for_each(|&v| hist.record(v));
            let mut sorted = values;
            sorted.sort_unstable();
            let (due, got) = (exact(&sorted, ppm), hist.percentile_ns(ppm));
            prop_assert!(got >= due, "{got} below {due}");
            prop_assert!(u128::from(got - due) * 1_000_000 <= u128::from(due) * u128::from(ERROR_PPM), "{got} for {due}");
            prop_assert_eq!(hist.max_ns(), sorted[sorted.len() - 1]);
            prop_assert_eq!(hist.min_ns(), sorted[0]);
            prop_assert_eq!(hist.sum_ns(), sorted.iter().map(|&v| u128::from(v)).sum::<u128>());
        }

        #[test]
        fn merged_is_recorded_together(a in prop::collection::vec(any::<u64>(), 0..50), b in prop::collection::vec(0_u64..1 << 40, 0..50)) {
            let (mut left, mut right, mut both) = (Histogram::new(), Histogram::new(), Histogram::new());
            a.iter().for_each(|&v| { left.record(v); both.record(v); });
            b.iter().for_each(|&v| { right.record(v); both.record(v); });
            left.merge(&right);
            for ppm in [1, 500_000, 990_000, 1_000_000] {
                prop_assert_eq!(left.percentile_ns(ppm), both.percentile_ns(ppm));
            }
            prop_assert_eq!((left.count(), left.sum_ns(), left.min_ns(), left.max_ns()),
                (both.count(), both.sum_ns(), both.min_ns(), both.max_ns()));
        }
    }
}
