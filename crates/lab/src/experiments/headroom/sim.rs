//! `tidegate lab headroom --on sim`: main's latency at the cpu.headroom patches' loads beside side work that always
//! wants more, on machines of several sizes, under Tidegate's engines, under what the kernel offers and
//! under others' published laws; then the same at one load over the range of the contention coefficients.
//!
//! Main is the host lab's server: Poisson arrivals, requests of 0.5 to 1.5 ms, two workers a CPU,
//! latency from the scheduled arrival, load 1.0 is 25 % of the machine. Every arm of a comparison meets
//! the same arrivals.

use tidegate_sim::workloads::{Common, Kind, OpenLoop, Pattern, Shape, Work};
use tidegate_sim::{Contention, MachineConfig};

use super::report::{Placing, Run, Slowdown, reclaim_pct, sample};
use super::{LEVEL_ONE_PCT, sim_report};
use crate::LabError;
use crate::beds::host::samplers::shares;
use crate::beds::sim::control::Control;
use crate::beds::sim::setup::Setup;
use crate::beds::sim::{MS, S, Stage, built, derive, latency, server};
use crate::dist::Latency;
use crate::experiments::published::LATENCY;
use crate::options::LabOptions;
use crate::report::{Report, Sample};

/// Sizes of the full run.
pub const SIZES: [u32; 3] = [16, 64, 256];
/// From here on the agent's trim takes long to settle.
const LARGE_CPUS: u32 = 64;
/// Where the contention is swept.
const SWEPT_CPUS: u32 = 64;
const SWEPT_LOAD: f64 = 1.0;
/// Beside the shipped coefficients: none, half of them, and the least and the most that are plausible.
const SWEPT: [Slowdown; 4] = [
    Slowdown::Scaled(0),
    Slowdown::Scaled(50),
    Slowdown::Low,
    Slowdown::High,
];
const REQUEST_NS: u64 = MS;

/// A way of placing side work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm {
    /// Who keeps the headroom.
    pub control: Control,
    /// Which part of the machine, percent, where the control takes it.
    pub headroom_pct: u32,
}

const fn arm(control: Control, headroom_pct: u32) -> Arm {
    Arm {
        control,
        headroom_pct,
    }
}

impl Arm {
    /// Every arm, in the tables' order.
    pub const ALL: [Arm; 14] = [
        Arm::NO_SIDE,
        arm(Control::WeightOne, 0),
        Arm::CPU_IDLE,
        arm(Control::KnobsBpf, 30),
        arm(Control::KnobsBpf, 20),
        arm(Control::KnobsCores, 30),
        arm(Control::KnobsCoresIdle, 30),
        arm(Control::KnobsWeight, 30),
        arm(Control::Ext, 30),
        arm(Control::Ext, 20),
        arm(Control::StaticMax, 30),
        arm(Control::Sideloader, 30),
        arm(Control::Koordlet, 35),
        arm(Control::Katalyst, 0),
    ];
    const SWEPT: [Arm; 5] = [
        Arm::NO_SIDE,
        Arm::CPU_IDLE,
        arm(Control::KnobsBpf, 30),
        arm(Control::KnobsCores, 30),
        arm(Control::Ext, 30),
    ];

    /// Whether the targets are meant for it: the product's engines at 30 %.
    pub fn has_target(self) -> bool {
        self.headroom_pct == 30
            && matches!(
                self.control,
                Control::KnobsBpf | Control::KnobsCores | Control::Ext
            )
    }

    /// In tables.
    pub fn label(self) -> String {
        match self.control {
            ours if ours.is_tidegate() => {
                format!("{}, {} %", self.control.label(), self.headroom_pct)
            }
            other => other.label().into(),
        }
    }

    /// The cpu.headroom patches' arm that this one stands for.
    pub fn published_key(self) -> String {
        match self.control {
            ours if ours.is_tidegate() => {
                format!("tidegate_{}", self.headroom_pct)
            }
            other => other.key().into(),
        }
    }
}

impl Slowdown {
    /// In tables.
    pub fn label(self) -> String {
        match self {
            Slowdown::Shipped => "as shipped".into(),
            Slowdown::Scaled(pct) => format!("{pct} %"),
            Slowdown::Low => "least plausible".into(),
            Slowdown::High => "most plausible".into(),
        }
    }

    fn of(self, shipped: Contention) -> Result<Contention, LabError> {
        let scale =
            |ppm: u32, pct: u32| (u64::from(ppm) * u64::from(pct) / 100).min(1_000_000) as u32;
        match self {
            Slowdown::Shipped => Ok(shipped),
            Slowdown::Scaled(pct) => Ok(Contention {
                sibling_ppm: scale(shipped.sibling_ppm, pct),
                llc_ppm: scale(shipped.llc_ppm, pct),
                machine_ppm: scale(shipped.machine_ppm, pct),
                ..shipped
            }),
            Slowdown::Low | Slowdown::High => Contention::shipped_sweep()
                .map(|sweep| {
                    if self == Slowdown::Low {
                        sweep.low
                    } else {
                        sweep.high
                    }
                })
                .map_err(|e| LabError::simulation("the shipped range", e.to_string())),
        }
    }
}

impl Placing for Arm {
    const NO_SIDE: Arm = arm(Control::NoSide, 0);
    const CPU_IDLE: Arm = arm(Control::CpuIdle, 0);

    fn key(self) -> String {
        match self.control {
            ours if ours.is_tidegate() => format!("{}_{}", ours.key(), self.headroom_pct),
            other => other.key().into(),
        }
    }

    fn kept_pct(self) -> f64 {
        match self.control.is_tidegate() {
            true => f64::from(self.headroom_pct),
            false => 0.0,
        }
    }
}

/// One simulation.
pub type Cell = Run<Arm>;

/// How long a cell runs.
pub struct Lengths {
    /// Before it is measured.
    pub warm_ns: u64,
    /// Measured.
    pub window_ns: u64,
}

/// Runs the experiment.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    let stage = Stage::new(options);
    let sizes = stage.sizes(stage.quick_or(&[16][..], &SIZES[..]));
    let loads = match &options.loads {
        Some(loads) => loads.clone(),
        None if options.quick => vec![1.0, 1.4],
        None => LATENCY.iter().map(|r| r.load).collect(),
    };
    if let Some(bad) = loads.iter().find(|l| !(0.04..=3.9).contains(*l)) {
        return Err(LabError::Asked {
            what: format!("load level {bad}"),
            why: "1.0 is 25 % of the machine".into(),
            mend: "give levels from 0.04 to 3.9".into(),
        });
    }
    let cells = cells(&stage, &sizes, &loads);
    let samples = stage.cells(
        &cells,
        |c| {
            let l = lengths(&stage, c);
            // About a million events for each 16 CPUs and second.
            (l.warm_ns + l.window_ns) / MS * u64::from(c.cpus) / 160
        },
        label,
        |c| simulate(*c, &lengths(&stage, c), options.seed),
    )?;
    sim_report::report(&stage, sizes, loads, samples)
}

/// Small machines run longer, so that each has about as many requests, but none less than 2 s. The agent
/// begins at the tolerance and gives slowly, so its arms take longer to be where they stay, on large
/// machines most of all; the quick form ends that early.
fn lengths(stage: &Stage<'_>, c: &Cell) -> Lengths {
    let warm_ms = match c.arm.control {
        knobs if knobs.is_knobs() && c.cpus >= LARGE_CPUS => stage.quick_or(3_000, 16_000),
        knobs if knobs.is_knobs() => stage.quick_or(3_000, 4_000),
        _ => stage.quick_or(1_000, 1_500),
    };
    let window_ms = stage.quick_or(1_000, 2_000 * 64 / u64::from(c.cpus.clamp(16, 64)));
    Lengths {
        warm_ns: warm_ms * MS,
        window_ns: window_ms * MS,
    }
}

fn cells(stage: &Stage<'_>, sizes: &[u32], loads: &[f64]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for &cpus in sizes {
        let rounds = stage.options.rounds;
        let rounds = rounds.unwrap_or(stage.quick_or(1, (128 / cpus).clamp(1, 3)));
        for round in 0..rounds.max(1) {
            for &load in loads {
                cells.extend(Arm::ALL.map(|arm| Cell {
                    cpus,
                    load,
                    arm,
                    slowdown: Slowdown::Shipped,
                    round,
                }));
            }
        }
    }
    let swept = if sizes.contains(&SWEPT_CPUS) {
        SWEPT_CPUS
    } else {
        sizes[0]
    };
    for slowdown in SWEPT {
        cells.extend(Arm::SWEPT.map(|arm| Cell {
            cpus: swept,
            load: if loads.contains(&SWEPT_LOAD) {
                SWEPT_LOAD
            } else {
                loads[0]
            },
            arm,
            slowdown,
            round: 0,
        }));
    }
    cells
}

fn label(c: &Cell) -> String {
    format!(
        "{} CPUs, load {:.1}, {}, contention {}, round {}",
        c.cpus,
        c.load,
        c.arm.label(),
        c.slowdown.label(),
        c.round + 1
    )
}

/// The machine of a cell.
pub fn config(c: Cell, seed: u64) -> Result<MachineConfig, LabError> {
    let mut config = server(c.cpus, seed)?;
    config.contention = c.slowdown.of(config.contention)?;
    // Millions of events each; the experiment's quick form and the tests check.
    config.check = false;
    Ok(config)
}

/// What main takes where its siblings are busy: the published laws begin where they would stand after a
/// long time beside side work.
fn crowded_pct(busy_pct: f64, config: &MachineConfig) -> f64 {
    let speed = 1.0 - f64::from(config.contention.sibling_ppm) / 1e6;
    (busy_pct / speed.max(0.1)).min(99.0)
}

/// Runs one cell.
pub fn simulate(c: Cell, lengths: &Lengths, seed: u64) -> Result<Sample<Cell>, LabError> {
    // The same for every arm and slowdown.
    let seed = derive(
        seed,
        &[
            u64::from(c.cpus),
            (c.load * 1000.0) as u64,
            u64::from(c.round),
        ],
    );
    let busy_pct = c.load * LEVEL_ONE_PCT;
    let mut setup = Setup::new(
        config(c, seed)?,
        c.arm.control,
        f64::from(c.arm.headroom_pct),
        crowded_pct(busy_pct, &config(c, seed)?),
    )?;
    let common = Common {
        record_from_ns: lengths.warm_ns,
        seed,
        ..Common::new("main", setup.main)
    };
    let per_second = busy_pct / 100.0 * f64::from(c.cpus) * (S as f64 / REQUEST_NS as f64);
    let kind = Kind::OpenLoop(OpenLoop {
        workers: 2 * c.cpus,
        work: Work {
            mean_ns: REQUEST_NS,
            shape: Shape::Uniform,
        },
        pattern: Pattern::Poisson {
            gap_ns: (S as f64 / per_second) as u64,
        },
    });
    let made = built(kind.build(&common, &mut setup.sim.machine))?;
    if c.arm.control != Control::NoSide {
        setup.start_hogs(c.cpus, seed)?;
    }
    setup.advance(lengths.warm_ns)?;
    let from = setup.snapshot();
    let work_from = setup.sim.machine.work_done_ns(setup.side);
    setup.advance(lengths.warm_ns + lengths.window_ns)?;
    let m = &setup.sim.machine;
    let series = made.series.iter().find(|s| s.0 == "latency").map(|s| s.1);
    let latency = series.map_or_else(Latency::default, |id| latency(m.series(id)));
    let s = shares(&from, &setup.snapshot(), c.cpus as usize);
    let side_work_ns = (m.work_done_ns(setup.side) - work_from) as f64;
    let sample = sample(c, &latency, &s)
        .with("cpus", c.cpus)
        .with("contention", c.slowdown.label())
        .with("requests", latency.completed)
        .with("side_work_cpus", side_work_ns / lengths.window_ns as f64)
        .with("reclaim_pct", reclaim_pct(c.arm, &s));
    Ok(match latency.completed {
        0 => sample.aside("starved", 1.0),
        _ => sample,
    })
}
