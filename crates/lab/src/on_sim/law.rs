//! `tidegate lab law --on sim`: the seed's second table, under each of Tidegate's engines and on
//! machines of several sizes; and the worst second while main varies.

use std::sync::Arc;

use tidegate_sim::workloads::{Common, Kind, OpenLoop, Pattern as Arrivals, Shape, Work};

use super::constant::{self, Orders};
use super::control::Control;
use super::law_report;
use super::scene::{Scene, TOLERANCE_PCT};
use super::stage::{MS, S, Stage, built, derive, plain};
use crate::LabError;
use crate::experiments::law::{HEADROOM_PCT, Pattern, RAMP, SQUARE, Varying, expected_idle, judge};
use crate::experiments::seeds::{LAW, LawRow};
use crate::options::{LabOptions, Sense};
use crate::readers::{Shares, shares};
use crate::report::Report;
use crate::rng::Rng;

/// Sizes of the full run.
const SIZES: [u32; 3] = [2, 16, 64];
/// Where main varies.
const VARYING_CPUS: u32 = 16;

/// How main moves.
#[derive(Clone, Copy)]
pub enum Main {
    /// It holds the level of a row of the seed's table.
    Constant(&'static LawRow),
    /// It follows a pattern of the host's lab.
    Varying(&'static Pattern),
    /// It is a server at 40 % of the machine with Poisson arrivals.
    Server,
}

/// One simulation.
#[derive(Clone, Copy)]
pub struct Cell {
    /// Size of the machine.
    pub cpus: u32,
    /// The engine.
    pub control: Control,
    /// Main.
    pub main: Main,
}

/// What a constant level gave.
pub struct Constant {
    /// The seed's row.
    pub seed: &'static LawRow,
    /// Who had the machine.
    pub shares: Shares,
    /// Idle that was due.
    pub due_pct: f64,
    /// Side's CPU over what main left.
    pub reclaim_pct: f64,
    /// Writes of side's limit a second.
    pub writes_per_s: f64,
}

/// What came of a cell.
pub enum Outcome {
    /// Of a level.
    Constant(Constant),
    /// Of anything else.
    Varying(Varying),
}

struct Plan {
    settle_ns: u64,
    window_ns: u64,
    varying_s: u64,
}

/// Runs the experiment.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    let stage = Stage::new(options);
    let plan = Plan {
        settle_ns: stage.quick_or(1_500, 3_000) * MS,
        window_ns: stage.quick_or(2_000, 10_000) * MS,
        varying_s: stage.quick_or(6, 30),
    };
    let cells = cells(&stage);
    let seconds = |c: &Cell| match c.main {
        Main::Constant(_) => (plan.settle_ns + plan.window_ns) / S,
        _ => plan.varying_s,
    };
    let outcomes = stage.cells(
        &cells,
        |c| seconds(c) * (5 + 5 * u64::from(c.cpus)),
        label,
        |c| simulate(*c, &plan, options.seed),
    )?;
    law_report::report(&stage, &cells, &outcomes)
}

/// Tidegate's engines: all, or the one that was asked for.
fn engines(options: &LabOptions) -> Vec<Control> {
    match options.sense {
        Some(Sense::Bpf) => vec![Control::KnobsBpf],
        Some(Sense::Usage) => vec![Control::KnobsUsage],
        None => vec![Control::KnobsBpf, Control::KnobsUsage, Control::Ext],
    }
}

fn cells(stage: &Stage<'_>) -> Vec<Cell> {
    let sizes = stage.sizes(stage.quick_or(&[VARYING_CPUS][..], &SIZES[..]));
    let varying = if sizes.contains(&VARYING_CPUS) {
        VARYING_CPUS
    } else {
        sizes[0]
    };
    let mut cells = Vec::new();
    for control in engines(stage.options) {
        for &cpus in &sizes {
            cells.extend(LAW.iter().map(|seed| Cell {
                cpus,
                control,
                main: Main::Constant(seed),
            }));
        }
        cells.extend(
            [Main::Varying(&SQUARE), Main::Varying(&RAMP), Main::Server].map(|main| Cell {
                cpus: varying,
                control,
                main,
            }),
        );
    }
    cells
}

fn label(c: &Cell) -> String {
    let main = match c.main {
        Main::Constant(seed) => format!("main at {} %", seed.main_pct),
        Main::Varying(pattern) => format!("main as a {}", pattern.name),
        Main::Server => "main as a server".into(),
    };
    format!("{} CPUs, {}, {main}", c.cpus, c.control.label())
}

fn simulate(c: Cell, plan: &Plan, seed: u64) -> Result<Outcome, LabError> {
    let seed = derive(seed, &[u64::from(c.cpus)]);
    let busy_pct = match c.main {
        Main::Constant(row) => f64::from(row.main_pct),
        _ => 40.0,
    };
    let mut scene = Scene::new(plain(c.cpus, seed), c.control, HEADROOM_PCT, busy_pct)?;
    match c.main {
        Main::Server => start_server(&mut scene, c.cpus, seed)?,
        _ => {
            let common = Common {
                seed,
                ..Common::new("main", scene.main)
            };
            let orders = orders(c.main, plan.varying_s, seed);
            constant::start(&mut scene.sim.machine, &common, &orders)?;
        }
    }
    scene.start_hogs(seed)?;
    match c.main {
        Main::Constant(row) => constant_level(&mut scene, c, row, plan).map(Outcome::Constant),
        Main::Varying(pattern) => varying(&mut scene, c, pattern.name, plan),
        Main::Server => varying(&mut scene, c, "server, Poisson arrivals, 40 %", plan),
    }
}

/// Main's levels over time.
fn orders(main: Main, varying_s: u64, seed: u64) -> Orders {
    match main {
        Main::Constant(row) => Arc::from([(0, row.main_pct * 10_000)]),
        Main::Varying(pattern) => {
            let mut rng = Rng::new(seed);
            // A second in which the controller finds the pattern, and the pattern.
            let steps = ((varying_s + 1) as f64 / pattern.hold) as u32;
            let order = |step: u32| {
                let t = f64::from(step) * pattern.hold;
                ((t * S as f64) as u64, (pattern.level_ppm)(t, &mut rng))
            };
            (0..=steps).map(order).collect()
        }
        Main::Server => Arc::from([]),
    }
}

fn start_server(scene: &mut Scene, cpus: u32, seed: u64) -> Result<(), LabError> {
    let common = Common {
        seed,
        ..Common::new("main", scene.main)
    };
    let kind = Kind::OpenLoop(OpenLoop {
        workers: 2 * cpus,
        work: Work {
            mean_ns: MS,
            shape: Shape::Uniform,
        },
        pattern: Arrivals::Poisson {
            gap_ns: MS * 10 / (4 * u64::from(cpus)),
        },
    });
    built(kind.build(&common, &mut scene.sim.machine)).map(|_| ())
}

fn constant_level(
    scene: &mut Scene,
    c: Cell,
    seed: &'static LawRow,
    plan: &Plan,
) -> Result<Constant, LabError> {
    scene.advance(plan.settle_ns)?;
    scene.count_writes();
    let from = scene.snapshot();
    scene.advance(plan.settle_ns + plan.window_ns)?;
    let s = shares(&from, &scene.snapshot(), c.cpus as usize);
    let left = (100.0 - HEADROOM_PCT - s.main_pct).max(TOLERANCE_PCT);
    Ok(Constant {
        seed,
        due_pct: expected_idle(s.main_pct),
        reclaim_pct: 100.0 * s.side_pct / left,
        writes_per_s: scene.writes() as f64 / s.seconds,
        shares: s,
    })
}

fn varying(
    scene: &mut Scene,
    c: Cell,
    name: &'static str,
    plan: &Plan,
) -> Result<Outcome, LabError> {
    let mut looks = Vec::new();
    for tenth in 10..=(plan.varying_s + 1) * 10 {
        scene.advance(tenth * 100 * MS)?;
        looks.push(scene.snapshot());
    }
    Ok(Outcome::Varying(judge(name, &looks, c.cpus as usize)))
}
