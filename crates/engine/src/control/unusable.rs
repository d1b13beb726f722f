//! Samples that could not be used: how many, and how many lately.

use std::collections::VecDeque;

const MINUTE_NS: u64 = 60_000_000_000;
/// So many are remembered; more than this in a minute count as this many.
const REMEMBERED: usize = 1_000;
/// More than this in a minute is worth an alert.
const ALERT_ABOVE: usize = 1;

#[derive(Default)]
pub struct Unusable {
    total: u64,
    times_ns: VecDeque<u64>,
}

impl Unusable {
    pub fn add(&mut self, now_ns: u64) {
        self.total += 1;
        if self.times_ns.len() == REMEMBERED {
            self.times_ns.pop_front();
        }
        self.times_ns.push_back(now_ns);
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn last_minute(&self, now_ns: u64) -> usize {
        let is_recent = |at_ns: &&u64| now_ns.saturating_sub(**at_ns) < MINUTE_NS;
        self.times_ns.iter().filter(is_recent).count()
    }

    pub fn alert(&self, now_ns: u64, sensing: &str) -> Option<String> {
        let lately = self.last_minute(now_ns);
        let other = match sensing {
            "bpf" => ", or try --sense usage",
            _ => "",
        };
        (lately > ALERT_ABOVE).then(|| {
            format!(
                "sensing ({sensing}): {lately} samples of the last minute were impossible and left out; side work is cut \
                 after 250 ms without a usable one; look for CPUs that come and go or a clock that jumps{other}"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_minute_is_no_alert_and_two_are() {
        let mut unusable = Unusable::default();
        unusable.add(1_000);
        assert_eq!(unusable.alert(2_000, "bpf"), None);
        unusable.add(MINUTE_NS);
        assert_eq!(unusable.last_minute(MINUTE_NS + 999), 2);
        assert!(
            unusable
                .alert(MINUTE_NS + 999, "bpf")
                .is_some_and(|alert| alert.contains("2 samples"))
        );
        assert_eq!(unusable.alert(MINUTE_NS + 1_000, "bpf"), None);
        assert_eq!(unusable.total(), 2);
    }

    #[test]
    fn a_storm_is_remembered_in_bounded_memory() {
        let mut unusable = Unusable::default();
        (0..5_000).for_each(|at_ns| unusable.add(at_ns));
        assert_eq!(
            (unusable.total(), unusable.last_minute(5_000)),
            (5_000, 1_000)
        );
    }
}
