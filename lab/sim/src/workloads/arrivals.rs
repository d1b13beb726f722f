//! When requests come.

use std::sync::Arc;

use super::Work;
use crate::Ns;
use crate::prng::Prng;

const WHOLE_PPM: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub due_ns: Ns,
    /// Its work, as CPU time at full speed.
    pub work_ns: u64,
}

/// How arrivals are spread over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Independent of each other.
    Poisson {
        /// Mean time between two.
        gap_ns: u64,
    },
    /// Poisson with a rate that follows a curve.
    Curve {
        /// Mean time between two where the curve is at 100 %.
        gap_ns: u64,
        curve: Curve,
    },
    Listed {
        /// Due times from the workload's start, in order.
        requests: Arc<[Request]>,
    },
}

/// A share of the full rate over time: straight lines between points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Curve {
    /// Time and share in millionths, in order of time; the last share holds from there on.
    points: Arc<[(Ns, u64)]>,
    /// The curve begins again after this time.
    repeat_ns: Option<u64>,
}

impl Curve {
    /// Through these points, again and again when `repeat_ns` says so. Points must be in order of
    /// time, which the scenario's reader sees to.
    ///
    /// # Panics
    /// Without a point.
    pub fn new(points: Vec<(Ns, u64)>, repeat_ns: Option<u64>) -> Curve {
        assert!(!points.is_empty(), "a curve needs a point");
        debug_assert!(points.is_sorted_by_key(|point| point.0));
        Curve {
            points: points.into(),
            repeat_ns,
        }
    }

    /// The share at a time, in millionths.
    pub fn at(&self, time_ns: Ns) -> u64 {
        let time_ns = match self.repeat_ns {
            Some(repeat_ns) if repeat_ns > 0 => time_ns % repeat_ns,
            _ => time_ns,
        };
        let after = self.points.partition_point(|point| point.0 <= time_ns);
        let Some(&(from_ns, from)) = after.checked_sub(1).and_then(|at| self.points.get(at)) else {
            return self.points[0].1;
        };
        let Some(&(to_ns, to)) = self.points.get(after) else {
            return from;
        };
        let part = |whole: u64| {
            let scaled = u128::from(whole) * u128::from(time_ns - from_ns);
            // A part of `whole`, so it fits.
            (scaled / u128::from((to_ns - from_ns).max(1))) as u64
        };
        if to >= from {
            from + part(to - from)
        } else {
            from - part(from - to)
        }
    }

    /// The first time from `time_ns` on from which the share is not 0 all the way to the next
    /// point; none if it stays 0.
    fn after_nothing(&self, time_ns: Ns) -> Option<Ns> {
        let (round_ns, in_round_ns) = match self.repeat_ns {
            Some(repeat_ns) if repeat_ns > 0 => {
                (time_ns - time_ns % repeat_ns, time_ns % repeat_ns)
            }
            _ => (0, time_ns),
        };
        let after = self.points.partition_point(|point| point.0 <= in_round_ns);
        let is_nothing = |at: Option<usize>| {
            let share = at.and_then(|at| self.points.get(at)).map(|point| point.1);
            share.is_none_or(|share| share == 0)
        };
        if !is_nothing(after.checked_sub(1)) || !is_nothing(Some(after)) {
            return Some(time_ns);
        }
        // Before the first point its share holds, which is 0 or is met at once.
        let rises = self.points[after..].iter().position(|point| point.1 > 0);
        match (rises, self.repeat_ns) {
            (Some(0), _) => Some(time_ns),
            (Some(nth), _) => Some(round_ns + self.points[after + nth - 1].0),
            (None, Some(repeat_ns)) if repeat_ns > 0 => Some(round_ns + repeat_ns),
            (None, _) => None,
        }
    }

    pub fn peak(&self) -> u64 {
        let shares = self.points.iter().map(|point| point.1);
        shares.max().unwrap_or(0)
    }
}

/// Requests, one after the other.
#[derive(Debug)]
pub struct Arrivals {
    pattern: Pattern,
    work: Work,
    start_ns: Ns,
    rng: Prng,
    /// Time since the start, up to which arrivals were drawn.
    at_ns: Ns,
    /// The next in the list.
    index: usize,
}

impl Arrivals {
    /// Those of a pattern, from a time on.
    pub fn new(pattern: Pattern, work: Work, start_ns: Ns, rng: Prng) -> Arrivals {
        Arrivals {
            pattern,
            work,
            start_ns,
            rng,
            at_ns: 0,
            index: 0,
        }
    }

    /// Draws at the curve's peak, each taken with the odds of the curve's share of that peak
    /// (thinning).
    ///
    /// Stretches without requests are skipped: the time to the next draw does not depend on how
    /// long none came. A curve that is 0 nearly everywhere could still make it search for ever:
    /// after a million draws in vain there is none.
    fn thinned(&mut self, gap_ns: u64, curve: &Curve) -> bool {
        let peak = curve.peak();
        if peak == 0 {
            return false;
        }
        let gap_ns = u128::from(gap_ns) * u128::from(WHOLE_PPM) / u128::from(peak);
        let gap_ns = u64::try_from(gap_ns).unwrap_or(u64::MAX);
        for _ in 0..1_000_000 {
            match curve.after_nothing(self.at_ns) {
                Some(at_ns) => self.at_ns = at_ns,
                None => return false,
            }
            self.at_ns = self.at_ns.saturating_add(self.rng.exp_ns(gap_ns));
            if self.rng.below(peak) < curve.at(self.at_ns) {
                return true;
            }
        }
        false
    }
}

impl Iterator for Arrivals {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let mut work_ns = None;
        match self.pattern.clone() {
            Pattern::Poisson { gap_ns } => self.at_ns += self.rng.exp_ns(gap_ns),
            Pattern::Curve { gap_ns, curve } => {
                if !self.thinned(gap_ns, &curve) {
                    return None;
                }
            }
            Pattern::Listed { requests } => {
                let request = requests.get(self.index)?;
                self.index += 1;
                self.at_ns = request.due_ns;
                work_ns = Some(request.work_ns);
            }
        }
        Some(Request {
            due_ns: self.start_ns.saturating_add(self.at_ns),
            work_ns: work_ns.unwrap_or_else(|| self.work.draw(&mut self.rng)),
        })
    }
}
