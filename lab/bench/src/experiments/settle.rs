//! How soon side work follows a step of main, from a trace of its CPU time.
//!
//! *Settled* at `t` after the step: side's mean rate over `[t, t + 20 ms]` **and** over
//! `[t, t + 200 ms]` is within 5 points (percent of the machine) of its new allowance; the settle
//! time is the least such `t`. The short window finds the moment, the long one refuses a lull that
//! does not last. For giving back only the long window counts: a quota with a period of 100 ms is
//! spent in one piece, which no short window can call steady.
//!
//! *Reaction* is the same thing without a threshold: side's CPU above its new allowance over the
//! first second, divided by the drop. A controller that did nothing for `d` and then everything at
//! once has a reaction of `d`.

use crate::beds::host::samplers::Sample;

/// Side's CPU time at a moment, both in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// When.
    pub at_ns: u64,
    /// CPU time so far.
    pub cpu_ns: u64,
}

impl From<&Sample> for Point {
    fn from(sample: &Sample) -> Self {
        Point {
            at_ns: sample.at_ns,
            cpu_ns: sample.side_ns,
        }
    }
}

/// How near is near enough, in percent of the machine.
pub const WITHIN_POINTS: f64 = 5.0;
const SHORT_NS: u64 = 20_000_000;
const LONG_NS: u64 = 200_000_000;
const GRID_NS: u64 = 1_000_000;
/// How long a cut is waited for.
const CUT_NS: u64 = 500_000_000;

/// A trace of one worker's CPU time on a machine of `cpus` CPUs.
pub struct Trace<'a> {
    /// Points in order of time.
    pub points: &'a [Point],
    /// CPUs of the machine.
    pub cpus: f64,
}

/// What one step down did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepDown {
    /// Settle time; infinite when the trace ends before side has settled.
    pub settle_ms: f64,
    /// Equivalent reaction time.
    pub reaction_ms: f64,
    /// Greatest 200 ms mean after settling, above the new allowance (points; 0 when none).
    pub over_points: f64,
    /// Least 200 ms mean after settling, below the new allowance (points; 0 when none).
    pub under_points: f64,
    /// Side's rate over the 500 ms before the step, percent of the machine.
    pub old_pct: f64,
}

impl Trace<'_> {
    /// CPU time at `at_ns`, interpolated; `None` outside the trace.
    fn cpu_at(&self, at_ns: u64) -> Option<f64> {
        let i = self.points.partition_point(|p| p.at_ns < at_ns);
        let after = self.points.get(i)?;
        if after.at_ns == at_ns {
            return Some(after.cpu_ns as f64);
        }
        let before = self.points.get(i.checked_sub(1)?)?;
        let part = (at_ns - before.at_ns) as f64 / (after.at_ns - before.at_ns) as f64;
        let rise = after.cpu_ns.saturating_sub(before.cpu_ns) as f64;
        Some(before.cpu_ns as f64 + part * rise)
    }

    /// Mean rate over a window, percent of the machine; `None` when it leaves the trace.
    pub fn rate_pct(&self, from_ns: u64, to_ns: u64) -> Option<f64> {
        let cpu = self.cpu_at(to_ns)? - self.cpu_at(from_ns)?;
        Some(100.0 * cpu / ((to_ns - from_ns) as f64 * self.cpus))
    }

    fn near(&self, from_ns: u64, length_ns: u64, target_pct: f64) -> Option<bool> {
        let rate = self.rate_pct(from_ns, from_ns + length_ns)?;
        Some((rate - target_pct).abs() <= WITHIN_POINTS)
    }

    /// Least time after `step_ns` at which every window of `lengths_ns` is near the target.
    fn first_near(&self, step_ns: u64, target_pct: f64, lengths_ns: &[u64]) -> Option<f64> {
        let mut t = step_ns;
        loop {
            let mut all = true;
            for &length in lengths_ns {
                all &= self.near(t, length, target_pct)?;
            }
            if all {
                return Some((t - step_ns) as f64 / 1e6);
            }
            t += GRID_NS;
        }
    }

    /// A step of main up: side must come down to `target_pct`. `None` when the trace does not
    /// cover half a second before and a second after the step.
    pub fn step_down(&self, step_ns: u64, target_pct: f64, end_ns: u64) -> Option<StepDown> {
        let old_pct = self.rate_pct(step_ns.checked_sub(500_000_000)?, step_ns)?;
        let second_pct = self.rate_pct(step_ns, step_ns + 1_000_000_000)?;
        let settle_ms = self
            .first_near(step_ns, target_pct, &[SHORT_NS, LONG_NS])
            .unwrap_or(f64::INFINITY);
        let drop_pct = (old_pct - target_pct).max(1.0);
        let (mut over, mut under) = (0.0f64, 0.0f64);
        if settle_ms.is_finite() {
            let mut t = step_ns + (settle_ms * 1e6) as u64;
            while let Some(rate) = self
                .rate_pct(t, t + LONG_NS)
                .filter(|_| t + LONG_NS <= end_ns)
            {
                over = over.max(rate - target_pct);
                under = under.max(target_pct - rate);
                t += LONG_NS / 10;
            }
        }
        Some(StepDown {
            settle_ms,
            reaction_ms: 1000.0 * (second_pct - target_pct) / drop_pct,
            over_points: over,
            under_points: under,
            old_pct,
        })
    }

    /// The most that side had beyond its new allowance by any moment of the half second after the step, as a length of
    /// time in which it took all that main left free (`free_pct` of the machine): how long nobody held it back.
    pub fn cut_ms(&self, step_ns: u64, target_pct: f64, free_pct: f64) -> Option<f64> {
        let from = self.cpu_at(step_ns)?;
        let mut most_ns = 0.0f64;
        for k in 1..=CUT_NS / GRID_NS {
            let cpu = self.cpu_at(step_ns + k * GRID_NS)? - from;
            let due = target_pct / 100.0 * (k * GRID_NS) as f64 * self.cpus;
            most_ns = most_ns.max(cpu - due);
        }
        let spare = (free_pct - target_pct).max(1.0) / 100.0 * self.cpus;
        Some(most_ns / spare / 1e6)
    }

    /// A step of main down: how long until side has `target_pct` again; infinite when it has not
    /// within the trace.
    pub fn give_back_ms(&self, step_ns: u64, target_pct: f64) -> f64 {
        self.first_near(step_ns, target_pct, &[LONG_NS])
            .unwrap_or(f64::INFINITY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// A trace sampled each millisecond of a side that runs at `rate(ms)` percent of two CPUs.
    fn trace(length_ms: u64, rate: impl Fn(u64) -> f64) -> Vec<Point> {
        let mut cpu = 0.0;
        (0..=length_ms)
            .map(|ms| {
                let point = Point {
                    at_ns: (1000 + ms) * MS,
                    cpu_ns: cpu as u64,
                };
                cpu += rate(ms) / 100.0 * 2.0 * MS as f64;
                point
            })
            .collect()
    }

    fn down(points: &[Point]) -> StepDown {
        Trace { points, cpus: 2.0 }
            .step_down(1500 * MS, 1.0, points[points.len() - 1].at_ns)
            .expect("long enough")
    }

    #[test]
    fn a_pure_delay_is_its_own_settle_and_reaction_time() {
        let s = down(&trace(2500, |ms| if ms < 500 + 40 { 60.0 } else { 1.0 }));
        // A 20 ms window may hold up to (5 / 59) of 20 ms at the old rate: settled 1.7 ms earlier.
        assert!((38.0..=40.0).contains(&s.settle_ms), "{s:?}");
        assert!((s.reaction_ms - 40.0).abs() < 0.5, "{s:?}");
        assert!((s.old_pct - 60.0).abs() < 0.1);
    }

    #[test]
    fn a_cut_is_as_long_as_side_took_what_was_free() {
        // Main steps to 80 % at 500 ms; for 30 ms side takes the 20 % that are left.
        let points = trace(2500, |ms| match ms {
            _ if ms < 500 => 60.0,
            _ if ms < 530 => 20.0,
            _ => 1.0,
        });
        let t = Trace {
            points: &points,
            cpus: 2.0,
        };
        let cut = t.cut_ms(1500 * MS, 1.0, 20.0).expect("long enough");
        assert!((cut - 30.0).abs() < 0.01, "{cut}");
        // A millisecond of the tolerance at once is five of the free time.
        let points = trace(2500, |ms| if ms == 510 { 100.0 } else { 0.0 });
        let t = Trace {
            points: &points,
            cpus: 2.0,
        };
        let cut = t.cut_ms(1500 * MS, 1.0, 20.0).expect("long enough");
        assert!((cut - (1.0 - 0.11) / 0.19).abs() < 0.01, "{cut}");
        assert!(t.cut_ms(3300 * MS, 1.0, 20.0).is_none());
    }

    #[test]
    fn a_lull_is_not_settled() {
        // Zero from 50 to 80 ms, then the old rate until 300 ms.
        let s = down(&trace(2500, |ms| match ms - 500.min(ms) {
            50..80 => 1.0,
            m if m < 300 => 60.0,
            _ => 1.0,
        }));
        assert!((295.0..=300.0).contains(&s.settle_ms), "{s:?}");
    }

    #[test]
    fn never_settled_is_infinite_and_reacts_in_the_whole_second() {
        let s = down(&trace(2500, |_| 60.0));
        assert!(s.settle_ms.is_infinite());
        assert!((s.reaction_ms - 1000.0).abs() < 1.0);
    }

    #[test]
    fn a_quota_spent_in_one_piece_is_settled() {
        // 1 % of two CPUs as 1 ms of both CPUs at the start of each 100 ms.
        let s = down(&trace(2500, |ms| match ms {
            _ if ms < 510 => 60.0,
            _ if ms % 100 == 0 => 100.0,
            _ => 0.0,
        }));
        assert!(s.settle_ms <= 10.0, "{s:?}");
        assert!(s.over_points < 1.0 && s.under_points < 1.1, "{s:?}");
    }

    #[test]
    fn undershoot_shows() {
        let s = down(&trace(3000, |ms| match ms {
            _ if ms < 510 => 60.0,
            1200..1500 => 0.0,
            _ => 4.0,
        }));
        assert!((s.under_points - 1.0).abs() < 0.05, "{s:?}");
        assert!((s.over_points - 3.0).abs() < 0.05, "{s:?}");
    }

    #[test]
    fn a_short_trace_has_no_answer() {
        let points = trace(1000, |_| 60.0);
        assert!(
            Trace {
                points: &points,
                cpus: 2.0
            }
            .step_down(1500 * MS, 1.0, 2000 * MS)
            .is_none()
        );
    }

    #[test]
    fn giving_back_counts_the_long_window_only() {
        // Back after 300 ms, as 60 ms of every 100 ms.
        let points = trace(3000, |ms| match ms {
            _ if ms < 800 => 1.0,
            _ if ms % 100 < 60 => 100.0,
            _ => 0.0,
        });
        let t = Trace {
            points: &points,
            cpus: 2.0,
        }
        .give_back_ms(1500 * MS, 60.0);
        assert!((250.0..=300.0).contains(&t), "{t}");
        assert!(
            Trace {
                points: &points,
                cpus: 2.0
            }
            .give_back_ms(1500 * MS, 90.0)
            .is_infinite()
        );
    }

    proptest! {
        #[test]
        fn a_delay_is_found_whatever_the_rates(delay in 0u64..600, old in 20.0..70.0f64, new in 0.5..8.0f64) {
            let points = trace(2500, |ms| if ms < 500 + delay { old } else { new });
            let s = Trace { points: &points, cpus: 2.0 }
                .step_down(1500 * MS, new, 3500 * MS).expect("long enough");
            // At most the share of the 200 ms window that 5 points allow at the old rate.
            let early = (5.0 / (old - new) * 20.0).ceil() + 1.0;
            prop_assert!(s.settle_ms <= delay as f64 + 0.01);
            prop_assert!(s.settle_ms >= (delay as f64 - early).max(0.0), "{s:?} after {delay}");
            prop_assert!((s.reaction_ms - delay as f64).abs() < 1.0, "{s:?} after {delay}");
        }

        #[test]
        fn settling_later_is_never_reported_earlier(a in 0u64..300, more in 30u64..300) {
            let at = |d: u64| down(&trace(2500, |ms| if ms < 500 + d { 60.0 } else { 1.0 })).settle_ms;
            prop_assert!(at(a) < at(a + more));
        }

        #[test]
        fn rates_add_up(cut in 1u64..1999, level in 0.0..100.0f64) {
            let points = trace(2000, |ms| if ms % 7 < 3 { level } else { 10.0 });
            let t = Trace { points: &points, cpus: 2.0 };
            let (start, mid, end) = (1000 * MS, (1000 + cut) * MS, 3000 * MS);
            let whole = t.rate_pct(start, end).expect("inside") * 2000.0;
            let parts = t.rate_pct(start, mid).expect("inside") * cut as f64
                + t.rate_pct(mid, end).expect("inside") * (2000 - cut) as f64;
            prop_assert!((whole - parts).abs() < 1e-3);
        }
    }
}
