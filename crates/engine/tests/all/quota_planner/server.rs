//! Main as an open-loop server: arrivals by a load that may change, served by as many CPUs as there
//! are, before all side work.

use super::kernel::STEP_NS;

/// A small generator, so that a seed names a run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// In [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

/// How requests come and how long they take.
#[derive(Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// Evenly spaced, 1 ms each.
    Even,
    /// Poisson, exponential of mean 1 ms.
    Poisson,
    /// As `lab law` drives main: on each CPU its share of every 2 ms, phases spread, what a period
    /// lacked or overran carried into the next.
    Duty,
}

/// Load in parts of the machine at a time in seconds.
pub type Load = fn(second: f64) -> f64;

const DUTY_PERIOD_NS: i64 = 2_000_000;

pub struct Server {
    load: Load,
    arrivals: Arrivals,
    random: Random,
    /// Work left on each CPU.
    running_ns: Vec<i64>,
    queue_ns: std::collections::VecDeque<i64>,
    due: f64,
    next_at: f64,
    pub on: Vec<bool>,
}

impl Server {
    pub fn new(cpus: usize, load: Load, arrivals: Arrivals, seed: u64) -> Self {
        Self {
            load,
            arrivals,
            random: Random::new(seed),
            running_ns: vec![0; cpus],
            queue_ns: std::collections::VecDeque::new(),
            due: 0.0,
            next_at: 1.0,
            on: vec![false; cpus],
        }
    }

    /// One step from `now_ns`; sets `on`.
    pub fn step(&mut self, now_ns: i64) {
        if self.arrivals == Arrivals::Duty {
            return self.step_duty(now_ns);
        }
        let cpus = self.running_ns.len();
        let load = (self.load)(now_ns as f64 / 1e9);
        // Requests of 1 ms on average: load * cpus of them are due each millisecond.
        self.due += load * cpus as f64 * STEP_NS as f64 / 1e6;
        while self.due >= self.next_at {
            let (gap, length) = if self.arrivals == Arrivals::Poisson {
                (self.random.exponential(1.0), self.random.exponential(1e6))
            } else {
                (1.0, 1e6)
            };
            self.next_at += gap;
            self.queue_ns.push_back(length as i64);
        }
        let start = (self.random.next() % cpus as u64) as usize;
        for turn in 0..cpus {
            let index = (start + turn) % cpus;
            if self.running_ns[index] <= 0 {
                // What a request overran the step by is taken from the next one there.
                let carried_ns = self.running_ns[index];
                match self.queue_ns.pop_front() {
                    Some(length_ns) => self.running_ns[index] = carried_ns + length_ns,
                    None => {
                        self.on[index] = false;
                        continue;
                    }
                }
            }
            self.on[index] = self.running_ns[index] > 0;
            if self.on[index] {
                self.running_ns[index] -= STEP_NS;
            }
        }
    }

    /// A period's work is owed at its start; the load of that moment decides it.
    fn step_duty(&mut self, now_ns: i64) {
        let cpus = self.running_ns.len();
        for (index, owed_ns) in self.running_ns.iter_mut().enumerate() {
            let phase_ns = DUTY_PERIOD_NS * index as i64 / cpus as i64 / STEP_NS * STEP_NS;
            if (now_ns + DUTY_PERIOD_NS - phase_ns) % DUTY_PERIOD_NS == 0 {
                *owed_ns += ((self.load)(now_ns as f64 / 1e9) * DUTY_PERIOD_NS as f64) as i64;
            }
            self.on[index] = *owed_ns >= STEP_NS;
            if self.on[index] {
                *owed_ns -= STEP_NS;
            }
        }
    }
}
