//! What the loop tells of itself and of the machine: last second, last minute, since start.
//!
//! Everything is of fixed size and nothing is allocated after construction, since the loop feeds it
//! at each step.

use std::collections::VecDeque;

use hdrhistogram::Histogram;

const MINUTE_S: usize = 60;

/// An hour; a longer duration counts as this.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Durations by size, each to one significant digit or better: a percentile read from it is at most
/// 7 % off.
#[derive(Clone)]
pub struct Durations {
    counts: Histogram<u64>,
    sum_ns: u64,
}

impl Durations {
    pub fn new() -> Self {
        Self {
            counts: Histogram::new_with_max(LONGEST_NS, 1).expect("these bounds are valid"),
            sum_ns: 0,
        }
    }

    pub fn add(&mut self, ns: u64) {
        self.counts.saturating_record(ns);
        self.sum_ns += ns;
    }

    /// The duration that `per_mille` of all are at or below; 0 when there are none.
    pub fn percentile_ns(&self, per_mille: u64) -> u64 {
        let found_ns = self.counts.value_at_quantile(per_mille as f64 / 1e3);
        self.counts.lowest_equivalent(found_ns)
    }

    /// How many were in the bucket of `ns` or below it.
    pub fn at_most(&self, ns: u64) -> u64 {
        self.counts.count_between(0, ns)
    }

    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    pub fn total(&self) -> u64 {
        self.counts.len()
    }

    pub fn mean_ns(&self) -> u64 {
        self.sum_ns.checked_div(self.total()).unwrap_or(0)
    }

    fn clear(&mut self) {
        self.counts.clear();
        self.sum_ns = 0;
    }

    fn merged(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        sum.counts += &other.counts;
        sum.sum_ns += other.sum_ns;
        sum
    }
}

impl Default for Durations {
    fn default() -> Self {
        Self::new()
    }
}

/// Durations of the last one to two minutes: two halves that take turns.
#[derive(Default)]
pub struct Recent {
    halves: [Durations; 2],
    current: usize,
    turn_ns: u64,
}

impl Recent {
    pub fn add(&mut self, now_ns: u64, ns: u64) {
        if now_ns.saturating_sub(self.turn_ns) > MINUTE_S as u64 * 1_000_000_000 {
            self.turn_ns = now_ns;
            self.current ^= 1;
            self.halves[self.current].clear();
        }
        self.halves[self.current].add(ns);
    }

    pub fn all(&self) -> Durations {
        self.halves[0].merged(&self.halves[1])
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    pub wall_ns: u64,
    pub capacity_ns: u64,
    pub busy_ns: u64,
    pub side_ns: u64,
    /// Main gates, for display: neutral is busy less this and side.
    pub main_ns: u64,
    pub steal_ns: u64,
    /// What side work could have had: `(1 − headroom)·C − main`, floored at the tolerance.
    pub offered_ns: u64,
    /// Of work that could run, behind side work.
    pub behind_side_ns: u64,
}

impl Use {
    pub fn add(&mut self, other: &Self) {
        self.wall_ns += other.wall_ns;
        self.capacity_ns += other.capacity_ns;
        self.busy_ns += other.busy_ns;
        self.side_ns += other.side_ns;
        self.main_ns += other.main_ns;
        self.steal_ns += other.steal_ns;
        self.offered_ns += other.offered_ns;
        self.behind_side_ns += other.behind_side_ns;
    }

    pub fn cpus(&self, part_ns: u64) -> f64 {
        if self.wall_ns == 0 {
            0.0
        } else {
            part_ns as f64 / self.wall_ns as f64
        }
    }

    pub fn idle_ns(&self) -> u64 {
        self.capacity_ns.saturating_sub(self.busy_ns)
    }
}

/// Seconds of [`Use`], the last minute of them.
pub struct Meter {
    open: Use,
    seconds: VecDeque<Use>,
    totals: Totals,
}

/// Sums since the loop began, which never fall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub offered_ns: u128,
    pub side_ns: u128,
    pub main_ns: u128,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            open: Use::default(),
            seconds: VecDeque::with_capacity(MINUTE_S + 1),
            totals: Totals::default(),
        }
    }
}

impl Meter {
    /// Adds one step's use; `headroom_ppm` and `tolerance_ppm` were in force during it.
    pub fn add(&mut self, mut step: Use, headroom_ppm: u32, tolerance_ppm: u32) {
        let part = |ppm: u32| (u128::from(step.capacity_ns) * u128::from(ppm) / 1_000_000) as u64;
        let main_ns = step.busy_ns.saturating_sub(step.side_ns);
        let left_ns = step
            .capacity_ns
            .saturating_sub(part(headroom_ppm))
            .saturating_sub(main_ns);
        step.offered_ns = left_ns.max(part(tolerance_ppm));
        self.open.add(&step);
        self.totals.offered_ns += u128::from(step.offered_ns);
        self.totals.side_ns += u128::from(step.side_ns);
        self.totals.main_ns += u128::from(main_ns);
        if self.open.wall_ns >= 1_000_000_000 {
            if self.seconds.len() == MINUTE_S {
                self.seconds.pop_front();
            }
            self.seconds.push_back(self.open);
            self.open = Use::default();
        }
    }

    /// The last whole second, or what there is of the first.
    pub fn second(&self) -> Use {
        self.seconds.back().copied().unwrap_or(self.open)
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    pub fn minute(&self) -> Use {
        let mut sum = self.open;
        for second in &self.seconds {
            sum.add(second);
        }
        sum
    }

    /// Forgets the minute: side work has just begun or ended, and reclaim counts only while it is
    /// there.
    pub fn restart(&mut self) {
        self.seconds.clear();
        self.open = Use::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_bucket() {
        let mut durations = Durations::new();
        for ns in 1..=10_000 {
            durations.add(ns);
        }
        for (per_mille, want) in [(500, 5_000.0), (990, 9_900.0), (1000, 10_000.0)] {
            let got = durations.percentile_ns(per_mille) as f64;
            assert!(
                got <= want && got >= want * 0.88,
                "{per_mille}: {got} for {want}"
            );
        }
        assert_eq!(Durations::new().percentile_ns(500), 0);
        assert_eq!(durations.mean_ns(), 5_000);
    }

    #[test]
    fn what_is_offered_is_what_main_leaves_and_never_less_than_the_tolerance() {
        let mut meter = Meter::default();
        let ms = 1_000_000;
        // Main 50 % of two CPUs, then 80 %; headroom 30 %, tolerance 1 %.
        let step = |main_ms: u64, side_ms: u64| Use {
            wall_ns: 500 * ms,
            capacity_ns: 1000 * ms,
            busy_ns: (main_ms + side_ms) * ms,
            side_ns: side_ms * ms,
            ..Use::default()
        };
        meter.add(step(500, 200), 300_000, 10_000);
        meter.add(step(800, 10), 300_000, 10_000);
        let second = meter.second();
        assert_eq!(second.offered_ns, 210 * ms);
        assert_eq!(second.idle_ns(), 490 * ms);
        assert_eq!(second.cpus(second.side_ns), 0.21);
        meter.add(step(500, 200), 300_000, 10_000);
        assert_eq!(meter.minute().side_ns, 410 * ms, "with what has begun");
    }
}
