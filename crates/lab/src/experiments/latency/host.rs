//! `tidegate lab latency`: latency hints on a real kernel. cyclictest alone and beside hackbench, hackbench itself, a
//! schbench-like service beside hogs, and what three hogs keep beside a task that hints: with nothing, with a slice set
//! by hand through the kernel's call (what a stock kernel can do at best), and with Tidegate's hint.
//!
//! All of a cell is in one group of its own, as equals; where hackbench is apart, in another of the same weight. The
//! difference is what a fair class makes of a task that uses more than its fair share: in one group with hundreds of
//! runnable tasks, a timer task that runs for microseconds in each millisecond does so, and waits for its turn however
//! short its slice is.

use super::report::Way;
use super::{Beside, Part, cells, host_report};
use crate::beds::host::scheduler::Shared;
use crate::beds::host::tidegate::Lazy;
use crate::beds::host::{Setup, kept};
use crate::options::LabOptions;
use crate::progress::Progress;
use crate::report::Report;
use crate::rng::Rng;
use crate::{Engine, LabError};

/// How something is hinted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Not at all.
    Nothing,
    /// The kernel's shortest slice (or, for what should yield, its longest), set by its own call.
    Slice,
    /// ... on a kernel that preempts itself (`preempt=full`), which the lab may switch only in a guest.
    SliceFull,
    /// `tidegate set pid:N latency=H`.
    Tidegate,
    /// Not at all, under the ext engine.
    ExtNothing,
    /// A gate of the ext engine for a group of its own.
    Ext,
}

impl How {
    /// In the tables' order.
    pub const ALL: [How; 6] = [
        How::Nothing,
        How::Slice,
        How::SliceFull,
        How::Tidegate,
        How::ExtNothing,
        How::Ext,
    ];

    /// Those that every part is run with.
    fn of(engine: Engine) -> &'static [How] {
        match engine {
            Engine::Knobs => &[How::Nothing, How::Slice, How::Tidegate],
            Engine::Ext => &[How::Nothing, How::Slice, How::ExtNothing, How::Ext],
        }
    }

    /// Whether the ext engine runs it.
    pub fn is_ext(self) -> bool {
        matches!(self, How::ExtNothing | How::Ext)
    }

    /// In reports.
    pub fn way(self) -> Way {
        let (key, label) = match self {
            How::Nothing => ("nothing", "nothing"),
            How::Slice => ("slice", "slice by hand"),
            How::SliceFull => ("slice_preempt_full", "slice by hand, preempt=full"),
            How::Tidegate => ("tidegate", "Tidegate"),
            How::ExtNothing => ("ext_nothing", "ext engine, nothing"),
            How::Ext => ("ext", "ext engine"),
        };
        Way {
            key,
            label,
            hinted: !matches!(self, How::Nothing | How::ExtNothing),
        }
    }
}

/// A part, hinted in some way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// What runs.
    pub part: Part,
    /// How it is hinted.
    pub how: How,
}

/// Lengths of a run.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    /// Until a window begins.
    pub warm_s: f64,
    /// A window.
    pub window_s: f64,
    /// Three hogs settle their shares over this long.
    pub shares_s: f64,
    /// Messages of hackbench from a sender to a receiver, over its groups.
    pub loops: u32,
}

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
