//! Simulated: under each of Tidegate's engines and on machines of several sizes.

use std::sync::Arc;

use tidegate_sim::workloads::{Common, Kind, OpenLoop, Pattern as Arrivals, Shape, Work};

use super::patterns::{Pattern, RAMP, SQUARE, Varying, judge};
use super::report::{Form, LawRuns, Visit, Who};
use super::rows::{Constant, Hogs, Row};
use crate::LabError;
use crate::beds::HEADROOM_PCT;
use crate::beds::host::samplers::shares;
use crate::beds::sim::constant::{self, Orders};
use crate::beds::sim::control::Control;
use crate::beds::sim::setup::Setup;
use crate::beds::sim::{MS, S, Stage, built, derive, plain};
use crate::options::{LabOptions, Sense};
use crate::report::Report;
use crate::rng::Rng;

/// Sizes of the full run.
const SIZES: [u32; 3] = [2, 16, 64];
/// Where main varies.
const VARYING_CPUS: u32 = 16;

const NOTE: &str = "Headroom 30 %; side has one thread a CPU that always wants more; main has a thread on each CPU that \
         holds its level over each 2 ms. Due is what the terms ask: the headroom, or what main and the tolerance \
         (1 %) leave. Mechanism: Tidegate's own control step with its sensing and its writes (knobs) or its \
         decisions at each switch (ext), against cpu.max as the kernel does it (a write refills, debts are \
         forgiven, enforcement waits for a tick). The model's: no other programs, no steal, exact clocks, and no \
         contention, which the host's runs of the same experiment have.";

/// How main moves.
#[derive(Clone, Copy)]
pub enum Main {
    /// It holds the level of a row.
    Constant(Row),
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
    let mut visits: Vec<Visit> = Vec::new();
    for (cell, outcome) in cells.iter().zip(outcomes) {
        let who = who(cell.control);
        if !visits.iter().any(|v| v.who == who && v.cpus == cell.cpus) {
            visits.push(Visit {
                who: who.clone(),
                cpus: cell.cpus,
                constant: Vec::new(),
                varying: Vec::new(),
            });
        }
        let own = |v: &&mut Visit| v.who == who && v.cpus == cell.cpus;
        match (visits.iter_mut().find(own), outcome) {
            (Some(visit), Outcome::Constant(c)) => visit.constant.push(c),
            (Some(visit), Outcome::Varying(v)) => visit.varying.push(v),
            (None, _) => {}
        }
    }
    let mut sizes: Vec<u32> = cells.iter().map(|c| c.cpus).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let example = plain(sizes[0], options.seed);
    let bed = stage.bed(&sizes, &example, "EEVDF");
    let found = LawRuns {
        form: Form::Sim,
        visits,
        who: engines(options).into_iter().map(who).collect(),
        sensing: None,
    };
    let mut report = found.report(bed, sizes[sizes.len() / 2])?;
    report.notes.push(NOTE.into());
    Ok(report)
}

fn who(control: Control) -> Who {
    Who {
        key: control.key().into(),
        label: control.label().into(),
        keeps: true,
        // The contract is ± 1 point.
        bound: Some(1.0),
        writes: true,
    }
}

/// How Tidegate's engine senses: both ways, or the one that was asked for.
fn engines(options: &LabOptions) -> Vec<Control> {
    match options.sense {
        Some(Sense::Bpf) => vec![Control::KnobsBpf],
        Some(Sense::Usage) => vec![Control::KnobsUsage],
        None => vec![Control::KnobsBpf, Control::KnobsUsage],
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
            cells.extend(Row::all().map(|row| Cell {
                cpus,
                control,
                main: Main::Constant(row),
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
        Main::Constant(row) => format!("main at {} %", row.label()),
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
    let mut setup = Setup::new(plain(c.cpus, seed), c.control, HEADROOM_PCT, busy_pct)?;
    match c.main {
        Main::Server => start_server(&mut setup, c.cpus, seed)?,
        _ => {
            let common = Common {
                seed,
                ..Common::new("main", setup.main)
            };
            let orders = orders(c.main, plan.varying_s, seed);
            constant::start(&mut setup.sim.machine, &common, &orders)?;
        }
    }
    let hogs = match c.main {
        Main::Constant(row) => row.hogs,
        _ => Hogs::EachCpu,
    };
    setup.start_hogs(hogs.threads(c.cpus as usize) as u32, seed)?;
    match c.main {
        Main::Constant(row) => constant_level(&mut setup, c, row, plan).map(Outcome::Constant),
        Main::Varying(pattern) => varying(&mut setup, c, pattern.name, plan),
        Main::Server => varying(&mut setup, c, "server, Poisson arrivals, 40 %", plan),
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

fn start_server(setup: &mut Setup, cpus: u32, seed: u64) -> Result<(), LabError> {
    let common = Common {
        seed,
        ..Common::new("main", setup.main)
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
    built(kind.build(&common, &mut setup.sim.machine)).map(|_| ())
}

fn constant_level(setup: &mut Setup, c: Cell, row: Row, plan: &Plan) -> Result<Constant, LabError> {
    setup.advance(plan.settle_ns)?;
    setup.count_writes();
    let from = setup.snapshot();
    setup.advance(plan.settle_ns + plan.window_ns)?;
    let s = shares(&from, &setup.snapshot(), c.cpus as usize);
    let writes_per_s = setup.writes() as f64 / s.seconds;
    Ok(Constant::new(row, s, c.cpus as usize, writes_per_s))
}

fn varying(
    setup: &mut Setup,
    c: Cell,
    name: &'static str,
    plan: &Plan,
) -> Result<Outcome, LabError> {
    let mut looks = Vec::new();
    for tenth in 10..=(plan.varying_s + 1) * 10 {
        setup.advance(tenth * 100 * MS)?;
        looks.push(setup.snapshot());
    }
    Ok(Outcome::Varying(judge(name, &looks, c.cpus as usize)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The simplest case there is: nothing else runs.
    #[test]
    fn side_work_alone_gets_what_is_due() {
        let plan = Plan {
            settle_ns: 1_500 * MS,
            window_ns: 3_000 * MS,
            varying_s: 0,
        };
        for control in [Control::KnobsBpf, Control::KnobsUsage] {
            for cpus in [1, 2, 4, 8] {
                for row in Row::all().filter(|row| row.published.is_none()) {
                    let cell = Cell {
                        cpus,
                        control,
                        main: Main::Constant(row),
                    };
                    let Ok(Outcome::Constant(found)) = simulate(cell, &plan, 1) else {
                        panic!("{}: no outcome", label(&cell));
                    };
                    assert!(
                        found.reclaim_pct >= 98.0,
                        "{}: {:.2} %",
                        label(&cell),
                        found.reclaim_pct
                    );
                }
            }
        }
    }
}
