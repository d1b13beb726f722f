//! `tidegate lab auto --on sim`: machines of several sizes whose CPUs share nothing, caches or cores, three steady mains and one that
//! changes every few minutes; every way of holding side work back that can be set once, others' laws, and a headroom that is found.
//!
//! Main is the host lab's server: Poisson arrivals, requests of 0.5 to 1.5 ms, two workers a CPU, latency from the scheduled
//! arrival. Each arm is measured in its steady state: `auto` once it has found a headroom, or at the end of the longest search.

use tidegate_sim::workloads::{Common, Kind, OpenLoop, Shape, Work};

use super::sim_cells::{Bench, Cell, Contender, HARM_AIM_PPM, Lengths, Main, REQUEST_NS, Shared};
use super::sim_report;
use crate::LabError;
use crate::beds::sim::setup::Setup;
use crate::beds::sim::{S, Stage, built, derive, latency};
use crate::experiments::headroom::LEVEL_ONE_PCT;
use crate::experiments::headroom::check_loads;
use crate::options::LabOptions;
use crate::report::{Report, Sample, Samples};

/// Sizes of the full run.
const SIZES: [u32; 3] = [2, 16, 64];
/// Load levels, where 1.0 is 25 % of the machine.
const LOADS: [f64; 3] = [0.4, 1.0, 1.6];
/// A main that changes does so around this level.
const CHANGING: f64 = 1.0;
/// On larger machines a main that changes takes too long to simulate.
const CHANGING_CPUS_MAX: u32 = 16;
const FIXED: [u32; 8] = [0, 5, 10, 20, 30, 40, 50, 60];
const FIXED_QUICK: [u32; 3] = [0, 20, 40];

/// Runs the experiment.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    let stage = Stage::new(options);
    let sizes = stage.sizes(stage.quick_or(&[2][..], &SIZES[..]));
    let loads = match &options.loads {
        Some(loads) => loads.clone(),
        None => stage.quick_or(vec![CHANGING], LOADS.to_vec()),
    };
    check_loads(&loads, 3.9)?;
    let cells = cells(&stage, &sizes, &loads);
    let lengths = |c: &Cell| Lengths::of(c, options.quick);
    let samples = stage.cells(
        &cells,
        // About 0.4 ms for each CPU and second.
        |c| lengths(c).cost(c) / 2_500,
        Cell::label,
        |c| simulate(*c, lengths(c), options.seed),
    )?;
    sim_report::report(&stage, &sizes, Samples(samples))
}

fn mains(cpus: u32, loads: &[f64]) -> Vec<Main> {
    let steady = loads.iter().map(|load| Main {
        pct: load * LEVEL_ONE_PCT,
        changes: false,
    });
    let changing = (cpus <= CHANGING_CPUS_MAX).then_some(Main {
        pct: CHANGING * LEVEL_ONE_PCT,
        changes: true,
    });
    steady.chain(changing).collect()
}

/// The arms, in the tables' order.
pub fn arms(quick: bool) -> Vec<Contender> {
    let fixed = if quick { &FIXED_QUICK[..] } else { &FIXED[..] };
    let mut arms = vec![Contender::Alone, Contender::AsStarted, Contender::CpuIdle];
    arms.extend(fixed.iter().map(|pct| Contender::Fixed(*pct)));
    arms.extend(Contender::LAWS);
    arms.push(Contender::Auto);
    arms
}

fn cells(stage: &Stage<'_>, sizes: &[u32], loads: &[f64]) -> Vec<Cell> {
    let rounds = stage.options.rounds.unwrap_or(1).max(1);
    let arms = arms(stage.options.quick);
    let mut cells = Vec::new();
    for &cpus in sizes {
        for shared in Shared::ALL {
            // Threads of a core come in pairs.
            if shared == Shared::Cores && !cpus.is_multiple_of(2) {
                continue;
            }
            for main in mains(cpus, loads) {
                for round in 0..rounds {
                    cells.extend(arms.iter().map(|&arm| Cell {
                        bench: Bench { cpus, shared },
                        main,
                        arm,
                        round,
                    }));
                }
            }
        }
    }
    cells
}

/// What Tidegate found, and what finding it took.
struct Search {
    found_s: Option<f64>,
    /// For how much of the search the highest headroom was kept.
    held_pct: f64,
    held_ns: u64,
    /// When the window begins.
    end_ns: u64,
}

/// Runs until a headroom is found.
fn search(setup: &mut Setup, limit_ns: u64) -> Result<Search, LabError> {
    let mut end_ns = 0;
    loop {
        end_ns += S;
        setup.advance(end_ns)?;
        let found = setup.found();
        let first_ns = found.and_then(|found| found.first_ns);
        if first_ns.is_none() && end_ns < limit_ns {
            continue;
        }
        let held_ns = found.map_or(0, |found| found.low_ns);
        return Ok(Search {
            found_s: first_ns.map(|ns| ns as f64 / S as f64),
            held_pct: 100.0 * held_ns as f64 / end_ns as f64,
            held_ns,
            end_ns,
        });
    }
}

/// The machine of a cell with its engines.
fn setup(c: &Cell, seed: u64) -> Result<Setup, LabError> {
    let config = c.bench.config(seed)?;
    match c.arm {
        Contender::Auto => Setup::finding(config, c.control(), HARM_AIM_PPM),
        Contender::Fixed(pct) => Setup::new(config, c.control(), f64::from(pct), c.main.pct),
        _ => Setup::new(config, c.control(), 0.0, c.main.pct),
    }
}

/// Runs one cell.
fn simulate(c: Cell, lengths: Lengths, seed: u64) -> Result<Sample<Cell>, LabError> {
    let cpus = c.bench.cpus;
    // The same for every arm.
    let main_key = (c.main.pct * 1000.0) as u64 * 2 + u64::from(c.main.changes);
    let parts = [u64::from(cpus), main_key, u64::from(c.round)];
    let seed = derive(seed, &parts);
    let mut setup = setup(&c, seed)?;
    let common = Common {
        seed,
        ..Common::new("main", setup.main)
    };
    let kind = Kind::OpenLoop(OpenLoop {
        workers: 2 * cpus,
        work: Work {
            mean_ns: REQUEST_NS,
            shape: Shape::Uniform,
        },
        pattern: c.main.pattern(cpus, lengths.stair_ns),
    });
    let made = built(kind.build(&common, &mut setup.sim.machine))?;
    if c.arm != Contender::Alone {
        setup.start_hogs(cpus, seed)?;
    }
    let search = match c.arm {
        Contender::Auto => Some(search(&mut setup, lengths.search_ns)?),
        _ => None,
    };
    let from_ns = search.as_ref().map_or(lengths.warm_ns, |s| s.end_ns);
    setup.advance(from_ns)?;
    let series = made.series.iter().find(|s| s.0 == "latency").map(|s| s.1);
    let seen = |setup: &Setup| {
        let m = &setup.sim.machine;
        let latencies = series.map(|id| m.series(id).clone()).unwrap_or_default();
        (
            latencies,
            m.usage_ns(setup.side),
            m.work_done_ns(setup.side),
            m.usage_ns(setup.main),
        )
    };
    let before = seen(&setup);
    setup.advance(from_ns + lengths.window_ns)?;
    let after = seen(&setup);
    let wall_ns = lengths.window_ns as f64;
    let latency = latency(&after.0.since(&before.0));
    let found = setup.found();
    let held_ns = found
        .map(|f| f.low_ns)
        .zip(search.as_ref())
        .map(|(all, s)| all - s.held_ns);
    Ok(Sample::new(c)
        .with("cpus", cpus)
        .with("shared", c.bench.shared.name())
        .with("main_pct", c.main.pct)
        .with("main_changes", c.main.changes)
        .with("arm", c.arm.key())
        .with("round", c.round + 1)
        .latency("", &latency, &["avg", "p50", "p99"])
        .with("requests", latency.completed)
        .with("main_cpus", (after.3 - before.3) as f64 / wall_ns)
        .with("side_cpus", (after.1 - before.1) as f64 / wall_ns)
        .with("side_work_cpus", (after.2 - before.2) as f64 / wall_ns)
        .with("level_pct", found.map(|f| f64::from(f.level_ppm) / 1e4))
        .with(
            "why_unknown",
            found.and_then(|f| f.why_unknown).unwrap_or(""),
        )
        .with("found_s", search.as_ref().and_then(|s| s.found_s))
        .with(
            "search_s",
            search.as_ref().map(|s| s.end_ns as f64 / S as f64),
        )
        .with("held_searching_pct", search.as_ref().map(|s| s.held_pct))
        .with("held_pct", held_ns.map(|ns| 100.0 * ns as f64 / wall_ns)))
}
