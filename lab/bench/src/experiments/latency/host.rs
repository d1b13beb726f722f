//! `tidegate lab latency`: latency hints on a real kernel. cyclictest alone and beside hackbench, hackbench itself, a
//! schbench-like service beside hogs, and what three hogs keep beside a task that hints: with nothing, with a slice set
//! by hand through the kernel's call (what a stock kernel can do at best), and with Tidegate's hint.
//!
//! All of a cell is in one group of its own, as equals; where hackbench is apart, in another of the same weight. The
//! difference is what a fair class makes of a task that uses more than its fair share: in one group with hundreds of
//! runnable tasks, a timer task that runs for microseconds in each millisecond does so, and waits for its turn however
//! short its slice is.

use super::host_cells::{Cell, How, Lengths};
use super::{Beside, Part, cells, host_report};
use crate::beds::host::scheduler::Shared;
use crate::beds::host::tidegate::Lazy;
use crate::beds::host::{Setup, kept};
use crate::options::LabOptions;
use crate::progress::Progress;
use crate::report::Report;
use crate::rng::Rng;
use crate::{Engine, LabError};

/// Runs the experiment.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    let mut setup = Setup::new(options)?;
    setup.need_hierarchy()?;
    let virtual_time = crate::loads::spin::by_nops();
    let (quick, slow) = (options.quick, virtual_time);
    // A second of hackbench takes ten in the bed, where it is the same each time.
    let lengths = Lengths {
        warm_s: if quick { 0.5 } else { 1.0 },
        window_s: if quick {
            1.0
        } else if slow {
            2.5
        } else {
            5.0
        },
        shares_s: if quick { 3.0 } else { 20.0 },
        loops: if quick {
            160
        } else if slow {
            320
        } else {
            2560
        },
    };
    let groups = if options.quick {
        &[1, 4][..]
    } else {
        &[1, 4, 8, 16][..]
    };
    let rounds = options.rounds.unwrap_or(1).max(1);
    let mut cells = all_cells(groups, options.engine, virtual_time);
    let total: f64 = cells.iter().map(|c| seconds(c, &lengths)).sum::<f64>() * f64::from(rounds);
    let progress = Progress::new("latency", total, options.quiet);
    let mut rng = Rng::new(options.seed);
    let mut agent = Lazy::default();
    let gates = match options.engine {
        Engine::Ext => cells::gates(),
        Engine::Knobs => Vec::new(),
    };
    let mut shared = Shared::new(&setup.exe, setup.need_hierarchy()?, gates)?;
    let (mut samples, mut missing) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        rng.shuffle(&mut cells);
        // Tidegate's together, so that one agent does for all of them.
        cells.sort_by_key(|cell| (cell.how == How::Tidegate, cell.how.is_ext()));
        for &cell in &cells {
            let name = format!("{}, hinted by {}", cell.part.label(), cell.how.way().label);
            progress.stage(&name);
            let made = shared.get(cell.how.is_ext()).and_then(|ext| {
                let agent = agent.get(&setup.exe, cell.how == How::Tidegate)?;
                cells::measure(&setup, cell, agent, ext, &lengths)
            });
            samples.extend(kept(made, &name, &mut missing)?);
            progress.done(seconds(&cell, &lengths));
        }
    }
    drop((progress, shared));
    setup.machine.finish();
    host_report::report(setup, &lengths, samples, missing)
}

fn seconds(cell: &Cell, lengths: &Lengths) -> f64 {
    match cell.part {
        Part::Fairness { .. } => 1.0 + lengths.shares_s,
        Part::Hackbench { .. } => 0.5 + f64::from(lengths.loops) / 400.0,
        _ => 0.3 + lengths.warm_s + lengths.window_s,
    }
}

fn all_cells(groups: &[u32], engine: Engine, virtual_time: bool) -> Vec<Cell> {
    let mut cells = Vec::new();
    for &how in How::of(engine) {
        let mut parts = vec![
            Part::Schbench,
            Part::Fairness { hog: true },
            Part::Fairness { hog: false },
        ];
        parts.extend(Beside::ALL.map(|beside| Part::Cyclictest { beside }));
        parts.extend(groups.iter().map(|&groups| Part::Hackbench { groups }));
        cells.extend(parts.into_iter().map(|part| Cell { part, how }));
    }
    if virtual_time && engine == Engine::Knobs {
        cells.extend([Beside::Nothing, Beside::Together].map(|beside| Cell {
            part: Part::Cyclictest { beside },
            how: How::SliceFull,
        }));
    }
    cells
}
