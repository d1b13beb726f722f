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
    Regular {
        gap_ns: u64,
    },
    /// Independent of each other.
    Poisson {
        /// Mean time between two.
        gap_ns: u64,
    },
    /// Poisson while on, none while off. The first phase is on.
    Bursts {
        /// Mean time between two while on.
        gap_ns: u64,
        /// Length of a phase with arrivals.
        on_ns: u64,
        /// Length of one without.
        off_ns: u64,
        /// Whether phases have exactly these lengths, or exponentially distributed ones of these
        /// means.
        fixed_phases: bool,
    },
    /// Poisson with a rate that follows a curve.
    Curve {
        /// Mean time between two where the curve is at 100 %.
        gap_ns: u64,
        curve: Curve,
    },
    Listed {
        /// Due times from the workload's start, in order; a request without work of its own has 0.
        requests: Arc<[Request]>,
        /// The list begins again after this time.
        repeat_ns: Option<u64>,
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

    /// A day: `low` at its beginning, `high` in its middle, along a sine.
    ///
    /// 48 straight lines through `sin² x` by Bhaskara's approximation of the sine, `4x(π − x) /
    /// (5π²/4 − x(π − x))`, which is off by less than 0.0017: exact arithmetic, the same on every
    /// machine.
    pub fn diurnal(period_ns: u64, low_ppm: u64, high_ppm: u64) -> Curve {
        let point = |step: u64| {
            // x in 1/48 of a half turn: x(48 − x) ≤ 576, and 5·48²/4 = 2880.
            let product = step * (48 - step);
            let sine_ppm = 4 * product * WHOLE_PPM / (2880 - product);
            let square_ppm = (sine_ppm * sine_ppm / WHOLE_PPM).min(WHOLE_PPM);
            // A share is at most 2^32 in any scenario, so the product fits.
            let share = low_ppm + high_ppm.saturating_sub(low_ppm) * square_ppm / WHOLE_PPM;
            (period_ns / 48 * step, share)
        };
        Curve::new((0..=48).map(point).collect(), Some(period_ns))
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
    /// When the phase with arrivals ends (bursts).
    on_until_ns: Ns,
    /// The next in the list.
    index: usize,
    /// How often the list has begun again.
    round: u64,
}

impl Arrivals {
    /// Those of a pattern, from a time on.
    pub fn new(pattern: Pattern, work: Work, start_ns: Ns, rng: Prng) -> Arrivals {
        let mut arrivals = Arrivals {
            pattern,
            work,
            start_ns,
            rng,
            at_ns: 0,
            on_until_ns: 0,
            index: 0,
            round: 0,
        };
        if let Pattern::Bursts {
            on_ns,
            fixed_phases,
            ..
        } = arrivals.pattern
        {
            arrivals.on_until_ns = arrivals.phase(on_ns, fixed_phases);
        }
        arrivals
    }

    fn phase(&mut self, mean_ns: u64, fixed: bool) -> u64 {
        if fixed {
            mean_ns
        } else {
            self.rng.exp_ns(mean_ns)
        }
    }

    /// The gap ends in a phase with arrivals: phases without are skipped.
    fn burst(&mut self, gap_ns: u64, on_ns: u64, off_ns: u64, fixed: bool) {
        self.at_ns += self.rng.exp_ns(gap_ns);
        while self.at_ns >= self.on_until_ns {
            let over_ns = self.at_ns - self.on_until_ns;
            let next_on_ns = self.on_until_ns + self.phase(off_ns, fixed);
            // A phase of at least 1 ns, so that the loop moves on.
            let length_ns = self.phase(on_ns, fixed).max(1);
            self.at_ns = next_on_ns + over_ns;
            self.on_until_ns = next_on_ns + length_ns;
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

    fn listed(&mut self, requests: &[Request], repeat_ns: Option<u64>) -> Option<Request> {
        if self.index == requests.len() {
            repeat_ns?;
            self.index = 0;
            self.round += 1;
        }
        let request = requests.get(self.index)?;
        self.index += 1;
        let offset_ns = repeat_ns.unwrap_or(0).saturating_mul(self.round);
        self.at_ns = offset_ns.saturating_add(request.due_ns);
        Some(*request)
    }
}

impl Iterator for Arrivals {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let mut work_ns = 0;
        match self.pattern.clone() {
            Pattern::Regular { gap_ns } => self.at_ns += gap_ns.max(1),
            Pattern::Poisson { gap_ns } => self.at_ns += self.rng.exp_ns(gap_ns),
            Pattern::Bursts {
                gap_ns,
                on_ns,
                off_ns,
                fixed_phases,
            } => self.burst(gap_ns, on_ns, off_ns, fixed_phases),
            Pattern::Curve { gap_ns, curve } => {
                if !self.thinned(gap_ns, &curve) {
                    return None;
                }
            }
            Pattern::Listed {
                requests,
                repeat_ns,
            } => work_ns = self.listed(&requests, repeat_ns)?.work_ns,
        }
        if work_ns == 0 {
            work_ns = self.work.draw(&mut self.rng);
        }
        Some(Request {
            due_ns: self.start_ns.saturating_add(self.at_ns),
            work_ns,
        })
    }
}
