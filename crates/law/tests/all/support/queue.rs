//! A main that is a queue with k CPUs, run window by window beside side work whose level the law sets: synthetic streams for the
//! measurement of harm. Times are in ns; the same seed gives the same stream.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use tidegate_law::harm::{Arm, Harm, Window};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;

/// SplitMix64 (Steele et al., 2014), and the two distributions that a queue takes.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 < x <= 1.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }

    /// Of this mean and coefficient of variation: Erlang's below 1, two exponentials of equal share of the work above.
    pub fn service(&mut self, mean: f64, cv: f64) -> f64 {
        if cv == 0.0 {
            return mean;
        }
        if cv < 1.0 {
            let stages = (1.0 / (cv * cv)).round().max(1.0);
            return (0..stages as u32)
                .map(|_| self.exponential(mean / stages))
                .sum();
        }
        let share = 0.5 * (1.0 + ((cv * cv - 1.0) / (cv * cv + 1.0)).sqrt());
        if self.unit() < share {
            self.exponential(mean / (2.0 * share))
        } else {
            self.exponential(mean / (2.0 * (1.0 - share)))
        }
    }
}

/// How main's work comes.
#[derive(Clone, Copy, Debug)]
pub enum Arrivals {
    /// At its own rate.
    Poisson,
    /// The rate goes from 1 to `factor` and back in `period_s`.
    Drift { factor: f64, period_s: f64 },
    /// On for `on_s` and off (a twentieth of the rate) for `off_s`, in the mean.
    Bursts { on_s: f64, off_s: f64 },
    /// So many callers, each of which thinks for `think_us` in the mean.
    Closed { callers: u32, think_us: f64 },
}

#[derive(Clone, Copy, Debug)]
pub struct Main {
    pub cpus: usize,
    pub rate: f64,
    pub service_us: f64,
    pub cv: f64,
    pub arrivals: Arrivals,
    /// One in so many requests is long, `service_us` the mean of the others; 0: none. The share drifts by a factor of two.
    pub long_one_in: u32,
    pub long_us: f64,
}

impl Default for Main {
    fn default() -> Self {
        Self {
            cpus: 2,
            rate: 500.0,
            service_us: 800.0,
            cv: 1.0,
            arrivals: Arrivals::Poisson,
            long_one_in: 0,
            long_us: 0.0,
        }
    }
}

/// What side work at the higher level does to main, of its mean service time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Effect {
    /// Service takes longer by this share.
    pub service: f64,
    /// A turn begins later by this share of the mean service time.
    pub wait: f64,
    /// A turn in so many begins later by three times the mean service time; 0: none.
    pub late_one_in: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    start: f64,
    end: f64,
}

/// The queue between two windows.
pub struct Queue {
    main: Main,
    random: Random,
    now: f64,
    next: f64,
    on: bool,
    turn: f64,
    /// Arrived, not begun.
    line: VecDeque<f64>,
    callers: BinaryHeap<Reverse<u64>>,
    cpus: Vec<Cpu>,
    pub arrived: u64,
}

impl Queue {
    pub fn new(main: Main, seed: u64) -> Self {
        let mut random = Random(seed);
        let mut callers = BinaryHeap::new();
        if let Arrivals::Closed {
            callers: n,
            think_us,
        } = main.arrivals
        {
            for _ in 0..n {
                callers.push(Reverse(random.exponential(think_us * 1e3) as u64));
            }
        }
        let next = random.exponential(1e9 / main.rate);
        Self {
            main,
            random,
            now: 0.0,
            next,
            on: true,
            turn: 0.0,
            line: VecDeque::new(),
            callers,
            cpus: vec![Cpu::default(); main.cpus],
            arrived: 0,
        }
    }

    /// Arrivals a second at a time; for bursts, the next change of state is drawn here.
    fn rate(&mut self, at: f64) -> f64 {
        let at_s = at / 1e9;
        match self.main.arrivals {
            Arrivals::Drift { factor, period_s } => {
                let phase = (at_s / period_s).fract();
                let up = if phase < 0.5 {
                    2.0 * phase
                } else {
                    2.0 - 2.0 * phase
                };
                self.main.rate * (1.0 + (factor - 1.0) * up)
            }
            Arrivals::Bursts { on_s, off_s } => {
                while at_s >= self.turn {
                    self.on = !self.on;
                    let mean = if self.on { on_s } else { off_s };
                    self.turn += self.random.exponential(mean);
                }
                self.main.rate * if self.on { 1.0 } else { 0.05 }
            }
            _ => self.main.rate,
        }
    }

    /// Poisson arrivals of a rate that changes: thinned from ten times the mean rate, where it is not constant.
    fn arrive(&mut self, until: f64) {
        if matches!(self.main.arrivals, Arrivals::Closed { .. }) {
            return;
        }
        let most = match self.main.arrivals {
            Arrivals::Drift { factor, .. } => self.main.rate * factor.max(1.0),
            _ => self.main.rate,
        };
        while self.next < until {
            let at = self.next;
            let rate = self.rate(at);
            if rate >= most || self.random.unit() * most < rate {
                self.line.push_back(at);
                self.arrived += 1;
            }
            self.next = at + self.random.exponential(1e9 / most);
        }
    }

    /// The arrival that is next to begin.
    fn first(&self, until: f64) -> Option<f64> {
        let caller = self.callers.peek().map(|Reverse(at)| *at as f64);
        self.line
            .front()
            .copied()
            .or(caller.filter(|at| *at < until))
    }

    fn pop(&mut self) {
        if self.line.pop_front().is_none() && self.callers.pop().is_some() {
            self.arrived += 1;
        }
    }

    fn service_ns(&mut self, at: f64) -> f64 {
        let Main {
            service_us,
            cv,
            long_one_in,
            long_us,
            ..
        } = self.main;
        if long_one_in > 0 {
            let slow = 1.0 + 0.5 * (at / 97e9 * std::f64::consts::TAU).sin();
            if self.random.unit() * f64::from(long_one_in) < slow {
                return self.random.service(long_us * 1e3, cv);
            }
        }
        self.random.service(service_us * 1e3, cv)
    }

    /// One window at this effect.
    pub fn window(&mut self, length_ns: u64, effect: Effect) -> Window {
        let (from, until) = (self.now, self.now + length_ns as f64);
        let (mut turns, mut late, mut delay, mut cpu) = (0_u64, 0_u64, 0.0, 0.0);
        // Runs that the windows before left.
        for c in &self.cpus {
            cpu += (c.end.min(until) - c.start.max(from)).max(0.0);
        }
        self.arrive(until);
        while let Some(at) = self.first(until) {
            let first = (0..self.cpus.len())
                .min_by(|a, b| self.cpus[*a].end.total_cmp(&self.cpus[*b].end))
                .unwrap();
            let mut start = at.max(self.cpus[first].end);
            if start >= until {
                break;
            }
            self.pop();
            if effect.wait > 0.0 {
                start += self
                    .random
                    .exponential(effect.wait * self.main.service_us * 1e3);
            }
            let late_one_in = f64::from(effect.late_one_in);
            if effect.late_one_in > 0 && self.random.unit() * late_one_in < 1.0 {
                start += 3.0 * self.main.service_us * 1e3;
            }
            let takes = self.service_ns(start) * (1.0 + effect.service);
            self.cpus[first] = Cpu {
                start,
                end: start + takes,
            };
            turns += 1;
            // The threshold: the mean service time.
            late += u64::from(start - at > self.main.service_us * 1e3);
            delay += start - at;
            cpu += ((start + takes).min(until) - start).max(0.0);
            if let Arrivals::Closed { think_us, .. } = self.main.arrivals {
                let again = start + takes + self.random.exponential(think_us * 1e3);
                self.callers.push(Reverse(again as u64));
            }
        }
        self.now = until;
        Window {
            length_ns,
            turns,
            late,
            delay_ns: delay as u64,
            cpu_ns: cpu as u64,
            ..Window::default()
        }
    }
}

/// The law and the queue in closed loop.
pub struct Bed {
    pub queue: Queue,
    pub law: Harm,
    pub at_ns: u64,
    pub length_ns: u64,
    /// Time at the level that was not held, while it knew.
    pub probed_ns: u64,
    pub known_ns: u64,
}

impl Bed {
    pub fn new(main: Main, law: Harm, seed: u64) -> Self {
        Self {
            queue: Queue::new(main, seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x5851),
            law,
            at_ns: 0,
            length_ns: 50 * MS,
            probed_ns: 0,
            known_ns: 0,
        }
    }

    /// One window; `effect` is that of the higher level.
    pub fn step(&mut self, effect: Effect) {
        let arm = self.law.arm();
        let effect = if arm == Arm::High {
            effect
        } else {
            Effect::default()
        };
        let window = self.queue.window(self.length_ns, effect);
        self.law.step(&window.at(arm));
        self.at_ns += self.length_ns;
        if !self.law.learning() {
            self.known_ns += self.length_ns;
            self.probed_ns += self.length_ns * u64::from(self.law.arm() != self.law.held());
        }
    }

    /// Steps until it is so, at most for `seconds`; after how many it was.
    pub fn until(
        &mut self,
        seconds: u64,
        effect: Effect,
        mut so: impl FnMut(&Harm) -> bool,
    ) -> Option<f64> {
        let from = self.at_ns;
        while self.at_ns - from < seconds * SECOND {
            self.step(effect);
            if so(&self.law) {
                return Some((self.at_ns - from) as f64 / 1e9);
            }
        }
        None
    }
}
