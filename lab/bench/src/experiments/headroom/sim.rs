//! `tidegate lab headroom --on sim`: main's latency at the cpu.headroom patches' loads beside side work that always
//! wants more, on machines of several sizes, under Tidegate's engines, under what the kernel offers and
//! under others' published laws; then the same at one load over the range of the contention coefficients.
//!
//! Main is the host lab's server: Poisson arrivals, requests of 0.5 to 1.5 ms, two workers a CPU,
//! latency from the scheduled arrival, load 1.0 is 25 % of the machine. Every arm of a comparison meets
//! the same arrivals.

use tidegate_sim::MachineConfig;
use tidegate_sim::workloads::{Common, Kind, OpenLoop, Pattern, Shape, Work};

use super::check_loads;
use super::report::{Slowdown, reclaim_pct, sample};
use super::sim_cells::{Arm, Cell, config};
use super::{LEVEL_ONE_PCT, sim_report};
use crate::LabError;
use crate::beds::host::samplers::shares;
use crate::beds::sim::control::Control;
use crate::beds::sim::setup::Setup;
use crate::beds::sim::{MS, S, Stage, built, derive, latency};
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
    check_loads(&loads, 3.9)?;
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
