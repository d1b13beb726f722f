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

use crate::scene::Outcome;

/// Side's CPU time at a moment, both in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub at_ns: u64,
    pub cpu_ns: u64,
}

pub const WITHIN: f64 = 0.05;
const SHORT_NS: u64 = 20_000_000;
const LONG_NS: u64 = 200_000_000;
const GRID_NS: u64 = 1_000_000;
const CUT_NS: u64 = 500_000_000;

/// A trace of one worker's CPU time on a machine of `cpus` CPUs.
pub struct Trace {
    pub points: Vec<Point>,
    pub cpus: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepDown {
    /// Settle time; infinite if the trace ends before side has settled.
    pub settle_us: f64,
    pub reaction_us: f64,
    /// Greatest 200 ms mean after settling, above the new allowance; 0 if none is.
    pub over: f64,
    /// Least 200 ms mean after settling, below the new allowance; 0 if none is.
    pub under: f64,
    /// Side's part of the machine over the 500 ms before the step.
    pub old: f64,
}

impl Trace {
    pub fn of(o: &Outcome, load: usize) -> Self {
        let point = |look: &crate::scene::Look| Point {
            at_ns: look.at_ns,
            cpu_ns: look.used_ns[load].0,
        };
        Trace {
            points: o.looks.iter().map(point).collect(),
            cpus: o.cpus,
        }
    }

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

    /// Mean part of the machine over a window; `None` when it leaves the trace.
    pub fn rate(&self, from_ns: u64, to_ns: u64) -> Option<f64> {
        let cpu = self.cpu_at(to_ns)? - self.cpu_at(from_ns)?;
        Some(cpu / ((to_ns - from_ns) as f64 * self.cpus))
    }

    fn near(&self, from_ns: u64, length_ns: u64, target: f64) -> Option<bool> {
        let rate = self.rate(from_ns, from_ns + length_ns)?;
        Some((rate - target).abs() <= WITHIN)
    }

    /// Least time after `step_ns` at which every window of `lengths_ns` is near the target.
    fn first_near(&self, step_ns: u64, target: f64, lengths_ns: &[u64]) -> Option<f64> {
        let mut t = step_ns;
        loop {
            let mut all = true;
            for &length in lengths_ns {
                all &= self.near(t, length, target)?;
            }
            if all {
                return Some((t - step_ns) as f64 / 1e3);
            }
            t += GRID_NS;
        }
    }

    /// A step of main up: side must come down to `target`. `None` when the trace does not
    /// cover half a second before and a second after the step.
    pub fn step_down(&self, step_ns: u64, target: f64, end_ns: u64) -> Option<StepDown> {
        let old = self.rate(step_ns.checked_sub(500_000_000)?, step_ns)?;
        let second = self.rate(step_ns, step_ns + 1_000_000_000)?;
        let settle_us = self
            .first_near(step_ns, target, &[SHORT_NS, LONG_NS])
            .unwrap_or(f64::INFINITY);
        let drop = (old - target).max(0.01);
        let (mut over, mut under) = (0.0f64, 0.0f64);
        if settle_us.is_finite() {
            let mut t = step_ns + (settle_us * 1e3) as u64;
            while let Some(rate) = self.rate(t, t + LONG_NS).filter(|_| t + LONG_NS <= end_ns) {
                over = over.max(rate - target);
                under = under.max(target - rate);
                t += LONG_NS / 10;
            }
        }
        Some(StepDown {
            settle_us,
            reaction_us: 1e6 * (second - target) / drop,
            over,
            under,
            old,
        })
    }

    /// The most that side had beyond its new allowance by any moment of the half second after the
    /// step, as a length of time in which it took all that main left free (`free` of the machine):
    /// how long nobody held it back.
    pub fn went_on_us(&self, step_ns: u64, target: f64, free: f64) -> Option<f64> {
        let from = self.cpu_at(step_ns)?;
        let mut most_ns = 0.0f64;
        for k in 1..=CUT_NS / GRID_NS {
            let cpu = self.cpu_at(step_ns + k * GRID_NS)? - from;
            let due = target * (k * GRID_NS) as f64 * self.cpus;
            most_ns = most_ns.max(cpu - due);
        }
        let spare = (free - target).max(0.01) * self.cpus;
        Some(most_ns / spare / 1e3)
    }

    /// A step of main down: how long until side has `target` again; infinite if it has not by
    /// `end_ns`.
    pub fn give_back_us(&self, step_ns: u64, target: f64, end_ns: u64) -> f64 {
        let back_us = self.first_near(step_ns, target, &[LONG_NS]);
        let back_us = back_us.filter(|us| step_ns + (us * 1e3) as u64 + LONG_NS <= end_ns);
        back_us.unwrap_or(f64::INFINITY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// A trace each millisecond of a side that runs at `rate(ms)` percent of two CPUs.
    fn trace(length_ms: u64, rate: impl Fn(u64) -> f64) -> Trace {
        let mut cpu = 0.0;
        let point = |ms| {
            let point = Point {
                at_ns: (1000 + ms) * MS,
                cpu_ns: cpu as u64,
            };
            cpu += rate(ms) / 100.0 * 2.0 * MS as f64;
            point
        };
        Trace {
            points: (0..=length_ms).map(point).collect(),
            cpus: 2.0,
        }
    }

    fn down(trace: &Trace) -> StepDown {
        let end_ns = trace.points[trace.points.len() - 1].at_ns;
        trace
            .step_down(1500 * MS, 0.01, end_ns)
            .expect("long enough")
    }

    #[test]
    fn a_pure_delay_is_its_own_settle_and_reaction_time() {
        let s = down(&trace(2500, |ms| if ms < 500 + 40 { 60.0 } else { 1.0 }));
        // A 20 ms window may hold up to (5 / 59) of 20 ms at the old rate: settled 1.7 ms earlier.
        assert!((38e3..=40e3).contains(&s.settle_us), "{s:?}");
        assert!((s.reaction_us - 40e3).abs() < 500.0, "{s:?}");
        assert!((s.old - 0.6).abs() < 0.001);
    }

    #[test]
    fn a_cut_is_as_long_as_side_took_what_was_free() {
        // Main steps to 80 % at 500 ms; for 30 ms side takes the 20 % that are left.
        let t = trace(2500, |ms| match ms {
            _ if ms < 500 => 60.0,
            _ if ms < 530 => 20.0,
            _ => 1.0,
        });
        let cut = t.went_on_us(1500 * MS, 0.01, 0.2).expect("long enough");
        assert!((cut - 30e3).abs() < 10.0, "{cut}");
        // A millisecond of the tolerance at once is five of the free time.
        let t = trace(2500, |ms| if ms == 510 { 100.0 } else { 0.0 });
        let cut = t.went_on_us(1500 * MS, 0.01, 0.2).expect("long enough");
        assert!((cut - 1e3 * (1.0 - 0.11) / 0.19).abs() < 10.0, "{cut}");
        assert!(t.went_on_us(3300 * MS, 0.01, 0.2).is_none());
    }

    #[test]
    fn a_lull_is_not_settled_and_a_quota_spent_in_one_piece_is() {
        // The new rate from 50 to 80 ms, then the old one until 300 ms.
        let s = down(&trace(2500, |ms| match ms - 500.min(ms) {
            50..80 => 1.0,
            m if m < 300 => 60.0,
            _ => 1.0,
        }));
        assert!((295e3..=300e3).contains(&s.settle_us), "{s:?}");
        // 1 % of two CPUs as 1 ms of both at the start of each 100 ms.
        let s = down(&trace(2500, |ms| match ms {
            _ if ms < 510 => 60.0,
            _ if ms % 100 == 0 => 100.0,
            _ => 0.0,
        }));
        assert!(s.settle_us <= 10e3, "{s:?}");
        assert!(s.over < 0.01 && s.under < 0.011, "{s:?}");
    }

    #[test]
    fn never_settled_is_infinite_and_a_short_trace_has_no_answer() {
        let s = down(&trace(2500, |_| 60.0));
        assert!(s.settle_us.is_infinite());
        assert!((s.reaction_us - 1e6).abs() < 1e3);
        let short = trace(1000, |_| 60.0);
        assert!(short.step_down(1500 * MS, 0.01, 2000 * MS).is_none());
    }

    #[test]
    fn giving_back_counts_the_long_window_only() {
        // Back after 300 ms, as 60 ms of every 100 ms.
        let t = trace(3000, |ms| match ms {
            _ if ms < 800 => 1.0,
            _ if ms % 100 < 60 => 100.0,
            _ => 0.0,
        });
        let back = |target, end_ms: u64| t.give_back_us(1500 * MS, target, end_ms * MS);
        assert!((250e3..=300e3).contains(&back(0.6, 4000)));
        assert!(back(0.9, 4000).is_infinite() && back(0.6, 1900).is_infinite());
    }

    proptest! {
        #[test]
        fn a_delay_is_found_whatever_the_rates(delay in 0u64..600, old in 20.0..70.0f64, new in 0.5..8.0f64) {
            let t = trace(2500, |ms| if ms < 500 + delay { old } else { new });
            let s = t.step_down(1500 * MS, new / 100.0, 3500 * MS).expect("long enough");
            // At most the share of the 200 ms window that 5 points allow at the old rate.
            let early = (5.0 / (old - new) * 20.0).ceil() + 1.0;
            prop_assert!(s.settle_us <= delay as f64 * 1e3 + 10.0);
            prop_assert!(s.settle_us >= 1e3 * (delay as f64 - early).max(0.0), "{s:?} after {delay}");
            prop_assert!((s.reaction_us - delay as f64 * 1e3).abs() < 1e3, "{s:?} after {delay}");
        }
    }
}
