//! Lengths of time by powers of two, as the scheduler counts them.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::intf::DELAYS;

/// The first bucket is below this, each of the others below twice the one before; the last has no
/// bound.
const FIRST_NS: u64 = 1_024;

/// A histogram. A quantile is exact to its bucket, within which lengths are taken to be spread
/// evenly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// How many: below 1,024 ns, 2,048 ns and so on.
    pub counts: [u64; DELAYS],
    pub sum_ns: u64,
    pub longest_ns: u64,
}

impl Delays {
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The mean, which is exact; 0 where there are none.
    pub fn mean_ns(&self) -> u64 {
        self.sum_ns.checked_div(self.count()).unwrap_or(0)
    }

    /// What this many thousandths are not longer than; 0 where there are none.
    pub fn quantile_ns(&self, ppt: u32) -> u64 {
        let count = self.count();
        let wanted = (count * u64::from(ppt.min(1_000))).div_ceil(1_000).max(1);
        let mut below = 0;
        for (bucket, &here) in self.counts.iter().enumerate() {
            if below + here >= wanted {
                let (from_ns, to_ns) = self.bounds_ns(bucket);
                let part = (wanted - below) as f64 / here as f64;
                let within = from_ns + (part * to_ns.saturating_sub(from_ns) as f64) as u64;
                return within.min(self.longest_ns);
            }
            below += here;
        }
        0
    }

    fn bounds_ns(&self, bucket: usize) -> (u64, u64) {
        let from_ns = match bucket {
            0 => 0,
            _ => FIRST_NS << (bucket - 1),
        };
        match bucket + 1 {
            DELAYS => (from_ns, self.longest_ns),
            _ => (from_ns, FIRST_NS << bucket),
        }
    }

    /// Takes in another one's.
    pub fn add(&mut self, other: &Delays) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine += theirs;
        }
        self.sum_ns += other.sum_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    /// What was added since `before`, which was read earlier; the longest stays that of the whole
    /// time.
    pub fn since(&self, before: &Delays) -> Delays {
        let mut span = *self;
        for (mine, theirs) in span.counts.iter_mut().zip(before.counts) {
            *mine = mine.saturating_sub(theirs);
        }
        span.sum_ns = self.sum_ns.saturating_sub(before.sum_ns);
        span
    }
}

impl Serialize for Delays {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Delays", 4)?;
        out.serialize_field("wakeups", &self.count())?;
        out.serialize_field("mean_ns", &self.mean_ns())?;
        out.serialize_field("p50_ns", &self.quantile_ns(500))?;
        out.serialize_field("p99_ns", &self.quantile_ns(990))?;
        out.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(counts: &[(usize, u64)], longest_ns: u64) -> Delays {
        let mut delays = Delays {
            longest_ns,
            ..Delays::default()
        };
        for (bucket, count) in counts {
            delays.counts[*bucket] = *count;
        }
        delays
    }

    #[test]
    fn nothing_has_no_quantile() {
        let none = Delays::default();
        assert_eq!((none.count(), none.mean_ns()), (0, 0));
        assert_eq!((none.quantile_ns(500), none.quantile_ns(990)), (0, 0));
    }

    #[test]
    fn a_quantile_lies_in_its_bucket() {
        // 90 below 1,024 ns, 9 from 4,096 to 8,192, one from 65,536 on.
        let delays = of(&[(0, 90), (3, 9), (7, 1)], 100_000);
        assert_eq!(delays.quantile_ns(500), 568);
        assert_eq!(delays.quantile_ns(900), 1_024);
        assert_eq!(delays.quantile_ns(990), 8_192);
        assert_eq!(delays.quantile_ns(1_000), 100_000);
        let one = of(&[(DELAYS - 1, 1)], 80_000_000_000);
        assert_eq!(one.quantile_ns(500), 80_000_000_000);
    }
}
