//! The closed loop: main, side, kernel model, sensor, law, planner; and what came of it.

use super::kernel::{Appetite, Kernel, Reading, STEP_NS};
use super::server::{Arrivals, Load, Random, Server};
use tidegate_knobs::plan::{PlanConfig, PlanReason, Planner};
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
    pub writes: Vec<(i64, PlanReason, u64)>,
}

pub fn run(scene: &Scene) -> Run {
    let mut kernel = Kernel::new(scene.cpus, scene.tick_ns as i64);
    kernel.side_wants = scene.side_wants;
    let mut server = Server::new(scene.cpus, scene.load, scene.arrivals, scene.seed);
    let mut random = Random::new(scene.seed + 77);
    let (cfg, window_ns, granularity_ns) = match scene.sensing {
        Sensing::Bpf => (HeadroomConfig::FAST, 5_000_000, 0),
        Sensing::Usage => (HeadroomConfig::SLOW, 50_000_000, scene.tick_ns),
    };
    let headroom_ppm = (scene.headroom * 1e6) as u32;
    let mut law = Headroom::new(
        cfg,
        HeadroomTerms {
            headroom_ppm,
            tolerance_ppm: 10_000,
        },
    );
    let mut planner = Planner::new(PlanConfig {
        tick_ns: scene.tick_ns,
        ..PlanConfig::default()
    });
    let mut out = Run {
        cpus: scene.cpus,
        headroom: scene.headroom,
        main_ms: Vec::new(),
        side_ms: Vec::new(),
        writes: Vec::new(),
    };
    let (mut last, mut last_ns) = (Reading::default(), 0);
    let mut bin = Reading::default();
    let mut next_ns = window_ns + 1_350_000;
    while kernel.now_ns < scene.seconds * 1_000_000_000 {
        server.step(kernel.now_ns);
        kernel.step(&server.on);
        if kernel.now_ns % 1_000_000 == 0 {
            out.main_ms.push(kernel.main_ns - bin.main_ns);
            out.side_ms.push(kernel.side_ns - bin.side_ns);
            bin = kernel.exact();
        }
        if kernel.now_ns < next_ns {
            continue;
        }
        // The timer is punctual to a few hundred microseconds and drifts against the tick.
        next_ns += window_ns;
        let late_ns = (random.next() % 6) as i64 * STEP_NS;
        next_ns += if kernel.now_ns % 100_000_000 < window_ns {
            STEP_NS
        } else {
            0
        };
        let now = match scene.sensing {
            Sensing::Bpf => kernel.exact(),
            Sensing::Usage => kernel.accounted(),
        };
        let dt_ns = (kernel.now_ns - last_ns) as u64;
        let side_ns = (now.side_ns - last.side_ns) as u64;
        let decision = law.step(&HeadroomSample {
            dt_ns,
            capacity_ns: dt_ns * scene.cpus as u64,
            busy_ns: (now.main_ns - last.main_ns) as u64 + side_ns,
            side_ns,
            granularity_ns,
            valid: true,
        });
        (last, last_ns) = (now, kernel.now_ns);
        if let Some(plan) = planner.step(kernel.now_ns as u64, &decision, scene.cpus as u32) {
            let quota_us = plan.bandwidth.quota_us.unwrap();
            // Between the read and the write.
            for _ in 0..late_ns / STEP_NS {
                server.step(kernel.now_ns);
                kernel.step(&server.on);
                if kernel.now_ns % 1_000_000 == 0 {
                    out.main_ms.push(kernel.main_ns - bin.main_ns);
                    out.side_ms.push(kernel.side_ns - bin.side_ns);
                    bin = kernel.exact();
                }
            }
            kernel.write(quota_us, plan.bandwidth.period_us);
            out.writes.push((
                kernel.now_ns,
                plan.reason,
                plan.bandwidth.rate_ucpu().unwrap(),
            ));
        }
    }
    out
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
