//! The closed loop: main, side, kernel model, sensor, law, planner; and what came of it.

use super::kernel::{Appetite, Kernel, Reading, STEP_NS};
use super::server::{Arrivals, Load, Random, Server};
use tidegate_engine::control::Pulses;
use tidegate_engine::quota_planner::{QuotaPlan, QuotaPlanner, QuotaPlannerConfig, QuotaReason};
use tidegate_law::{Headroom, HeadroomConfig, HeadroomSample, HeadroomTerms};

#[derive(Clone, Copy, PartialEq)]
pub enum Sensing {
    /// Exact, every 5 ms.
    Bpf,
    /// Tick-granular, every 50 ms.
    Usage,
}

#[derive(Clone)]
pub struct Scene {
    pub cpus: usize,
    pub headroom: f64,
    pub load: Load,
    pub arrivals: Arrivals,
    pub sensing: Sensing,
    pub side_wants: Appetite,
    pub seconds: i64,
    pub tick_ns: u64,
    pub seed: u64,
}

impl Scene {
    pub fn new(cpus: usize, load: Load, arrivals: Arrivals, sensing: Sensing) -> Self {
        Self {
            cpus,
            headroom: 0.3,
            load,
            arrivals,
            sensing,
            side_wants: |_, _| true,
            seconds: 14,
            tick_ns: 4_000_000,
            seed: 1,
        }
    }
}

/// Milliseconds left out at the start: warm-up and ramp.
pub const SETTLE_MS: usize = 4_000;

/// Per-millisecond CPU times and the writes.
pub struct Run {
    pub cpus: usize,
    pub headroom: f64,
    pub main_ms: Vec<i64>,
    pub side_ms: Vec<i64>,
    pub writes: Vec<(i64, QuotaReason, u64)>,
}

/// The machine at work, seen by the millisecond.
struct Bed {
    kernel: Kernel,
    server: Server,
    bin: Reading,
    out: Run,
}

impl Bed {
    fn new(scene: &Scene) -> Self {
        let mut kernel = Kernel::new(scene.cpus, scene.tick_ns as i64);
        kernel.side_wants = scene.side_wants;
        Self {
            kernel,
            server: Server::new(scene.cpus, scene.load, scene.arrivals, scene.seed),
            bin: Reading::default(),
            out: Run {
                cpus: scene.cpus,
                headroom: scene.headroom,
                main_ms: Vec::new(),
                side_ms: Vec::new(),
                writes: Vec::new(),
            },
        }
    }

    fn step(&mut self) {
        self.server.step(self.kernel.now_ns);
        self.kernel.step(&self.server.on);
        if self.kernel.now_ns % 1_000_000 == 0 {
            self.out
                .main_ms
                .push(self.kernel.main_ns - self.bin.main_ns);
            self.out
                .side_ms
                .push(self.kernel.side_ns - self.bin.side_ns);
            self.bin = self.kernel.exact();
        }
    }

    fn write(&mut self, plan: &QuotaPlan) {
        let quota_us = plan.bandwidth.quota_us.unwrap();
        self.kernel.write(quota_us, plan.bandwidth.period_us);
        let rate_ucpu = plan.bandwidth.rate_ucpu().unwrap();
        self.out
            .writes
            .push((self.kernel.now_ns, plan.reason, rate_ucpu));
    }
}

pub fn run(scene: &Scene) -> Run {
    let mut bed = Bed::new(scene);
    let mut random = Random::new(scene.seed + 77);
    let (cfg, window_ns, granularity_ns) = match scene.sensing {
        Sensing::Bpf => (HeadroomConfig::FAST, 5_000_000, 0),
        Sensing::Usage => (HeadroomConfig::SLOW, 50_000_000, scene.tick_ns),
    };
    let terms = HeadroomTerms {
        headroom_ppm: (scene.headroom * 1e6) as u32,
        tolerance_ppm: 10_000,
    };
    let mut law = Headroom::new(cfg, terms);
    let mut pulses = Pulses::default();
    let mut planner = QuotaPlanner::new(QuotaPlannerConfig {
        tick_ns: scene.tick_ns,
        ..QuotaPlannerConfig::default()
    });
    let (mut last, mut last_ns) = (Reading::default(), 0);
    let mut next_ns = window_ns + 1_350_000;
    while bed.kernel.now_ns < scene.seconds * 1_000_000_000 {
        bed.step();
        let now_ns = bed.kernel.now_ns;
        if now_ns < next_ns {
            continue;
        }
        // The timer is punctual to a few hundred microseconds and drifts against the tick.
        let drifts = now_ns % 100_000_000 < window_ns;
        next_ns += window_ns + if drifts { STEP_NS } else { 0 };
        let late_steps = random.next() % 6;
        let now = match scene.sensing {
            Sensing::Bpf => bed.kernel.exact(),
            Sensing::Usage => bed.kernel.accounted(),
        };
        let dt_ns = (now_ns - last_ns) as u64;
        let side_ns = (now.side_ns - last.side_ns) as u64;
        let decision = pulses.smooth(
            dt_ns,
            law.step(&HeadroomSample {
                dt_ns,
                capacity_ns: dt_ns * scene.cpus as u64,
                busy_ns: (now.main_ns - last.main_ns) as u64 + side_ns,
                side_ns,
                granularity_ns,
                valid: true,
            }),
        );
        (last, last_ns) = (now, now_ns);
        if let Some(plan) = planner.step(now_ns as u64, &decision, scene.cpus as u32) {
            // Between the read and the write.
            for _ in 0..late_steps {
                bed.step();
            }
            bed.write(&plan);
        }
    }
    bed.out
}

impl Run {
    fn mean(&self, of: &[i64]) -> f64 {
        of.iter().sum::<i64>() as f64 / (of.len() * self.cpus) as f64 / 1e6
    }

    /// Shares of the machine after settling: main, side, idle.
    pub fn shares(&self) -> (f64, f64, f64) {
        let (main, side) = (
            self.mean(&self.main_ms[SETTLE_MS..]),
            self.mean(&self.side_ms[SETTLE_MS..]),
        );
        (main, side, 1.0 - main - side)
    }

    /// Side's CPU over what main left of 1 - headroom.
    pub fn reclaim(&self) -> f64 {
        let (main, side, _) = self.shares();
        side / (1.0 - self.headroom - main).max(0.01)
    }

    pub fn writes_per_s(&self) -> f64 {
        let from_ns = SETTLE_MS as i64 * 1_000_000;
        let seconds = (self.main_ms.len() - SETTLE_MS) as f64 / 1e3;
        self.writes.iter().filter(|w| w.0 >= from_ns).count() as f64 / seconds
    }

    /// Idle over each window of `ms`, moved in steps of 10 ms, sorted.
    pub fn idle_windows(&self, ms: usize) -> Vec<f64> {
        let mut idle: Vec<f64> = (SETTLE_MS..=self.main_ms.len() - ms)
            .step_by(10)
            .map(|at| {
                1.0 - self.mean(&self.main_ms[at..at + ms]) - self.mean(&self.side_ms[at..at + ms])
            })
            .collect();
        idle.sort_by(f64::total_cmp);
        idle
    }

    /// Least of (idle less what is due) over a second, as `lab law` judges it: what is due is the
    /// mean over the tenths, for main alone may take more than the headroom leaves.
    pub fn worst_second(&self) -> f64 {
        (SETTLE_MS..=self.main_ms.len() - 1_000)
            .step_by(10)
            .map(|at| {
                let due = (0..10).map(|tenth| {
                    let from = at + tenth * 100;
                    let main = self.mean(&self.main_ms[from..from + 100]);
                    1.0 - main - (1.0 - self.headroom - main).max(0.01)
                });
                let second = at..at + 1_000;
                let main = self.mean(&self.main_ms[second.clone()]);
                1.0 - main - self.mean(&self.side_ms[second]) - due.sum::<f64>() / 10.0
            })
            .fold(f64::INFINITY, f64::min)
    }

    /// Side's share of the machine over `ms` from a millisecond on.
    pub fn side_share(&self, at_ms: usize, ms: usize) -> f64 {
        self.mean(&self.side_ms[at_ms..at_ms + ms])
    }
}
