//! `tidegate lab latency`: latency hints on a real kernel. cyclictest alone and beside hackbench, hackbench itself, a
//! schbench-like service beside hogs, and what three hogs keep beside a task that hints: with nothing, with a slice set
//! by hand through the kernel's call (what a stock kernel can do at best), and with Tidegate's hint.
//!
//! All of a cell is in one group of its own, as equals; where hackbench is apart, in another of the same weight. The
//! difference is what a fair class makes of a task that uses more than its fair share: in one group with hundreds of
//! runnable tasks, a timer task that runs for microseconds in each millisecond does so, and waits for its turn however
//! short its slice is.

use crate::options::LabOptions;
use crate::progress::Progress;
use crate::report::Report;
use crate::rng::Rng;
use crate::scheduler::Shared;
use crate::tidegate::Lazy;
use crate::{Engine, LabError};

use super::latency_cells::{self, Outcome};
use super::{Setup, latency_report};

/// The hint that asks for the least latency, and the one that yields most.
pub const SENSITIVE: i8 = -20;
/// hackbench's, where it has one.
pub const YIELDING: i8 = 19;
/// Groups of hackbench beside cyclictest (`-g 16`).
pub const BESIDE_GROUPS: u32 = 16;

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
    /// Not at all, under `tidegate ext`.
    ExtNothing,
    /// A gate of `tidegate ext` for a group of its own.
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

    /// In tables.
    pub fn label(self) -> &'static str {
        match self {
            How::Nothing => "nothing",
            How::Slice => "slice by hand",
            How::SliceFull => "slice by hand, preempt=full",
            How::Tidegate => "Tidegate",
            How::ExtNothing => "ext engine, nothing",
            How::Ext => "ext engine",
        }
    }

    /// In JSON and CSV.
    pub fn key(self) -> &'static str {
        match self {
            How::Nothing => "nothing",
            How::Slice => "slice",
            How::SliceFull => "slice_preempt_full",
            How::Tidegate => "tidegate",
            How::ExtNothing => "ext_nothing",
            How::Ext => "ext",
        }
    }

    /// As a hint.
    pub fn hint(self, hint: i8) -> i8 {
        match self {
            How::Nothing | How::ExtNothing => 0,
            _ => hint,
        }
    }
}

/// What runs beside cyclictest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// hackbench in the same group: cyclictest's fair share is one of hundreds.
    Together,
    /// hackbench in another group: cyclictest's is half of the machine.
    Apart,
}

impl Beside {
    /// All of them.
    pub const ALL: [Beside; 3] = [Beside::Nothing, Beside::Together, Beside::Apart];

    /// In tables.
    pub fn label(self) -> &'static str {
        match self {
            Beside::Nothing => "nothing",
            Beside::Together => "hackbench",
            Beside::Apart => "hackbench apart",
        }
    }

    /// In JSON and CSV.
    pub fn key(self) -> &'static str {
        match self {
            Beside::Nothing => "nothing",
            Beside::Together => "hackbench",
            Beside::Apart => "hackbench_apart",
        }
    }
}

/// What runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// cyclictest with this beside it.
    Cyclictest {
        /// What.
        beside: Beside,
    },
    /// hackbench alone.
    Hackbench {
        /// How many groups.
        groups: u32,
    },
    /// A schbench-like service beside hogs.
    Schbench,
    /// Three hogs and a hinting task on one CPU.
    Fairness {
        /// Whether the hinting task is a hog too.
        hog: bool,
    },
}

impl Part {
    /// In progress and notes.
    fn label(self) -> String {
        match self {
            Part::Cyclictest { beside } => format!("cyclictest beside {}", beside.label()),
            Part::Hackbench { groups } => format!("hackbench, {groups} groups"),
            Part::Schbench => "schbench beside hogs".into(),
            Part::Fairness { hog: true } => "shares beside a hog that hints".into(),
            Part::Fairness { hog: false } => "shares beside a task that hints".into(),
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
    let virtual_time = crate::worker::spin::by_nops();
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
    let mut cells = cells(groups, options.engine, virtual_time);
    let total: f64 = cells.iter().map(|c| seconds(c, &lengths)).sum::<f64>() * f64::from(rounds);
    let progress = Progress::new("latency", total, options.quiet);
    let mut rng = Rng::new(options.seed);
    let mut agent = Lazy::default();
    let gates = match options.engine {
        Engine::Ext => latency_cells::gates(),
        Engine::Knobs => Vec::new(),
    };
    let mut shared = Shared::new(&setup.exe, setup.need_hierarchy()?, gates)?;
    let (mut outcomes, mut missing): (Vec<Outcome>, Vec<String>) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        rng.shuffle(&mut cells);
        // Tidegate's together, so that one agent does for all of them.
        cells.sort_by_key(|cell| (cell.how == How::Tidegate, cell.how.is_ext()));
        for &cell in &cells {
            let name = format!("{}, hinted by {}", cell.part.label(), cell.how.label());
            progress.stage(&name);
            let made = shared.get(cell.how.is_ext()).and_then(|ext| {
                let agent = agent.get(&setup.exe, cell.how == How::Tidegate)?;
                latency_cells::measure(&setup, cell, agent, ext, &lengths)
            });
            match made {
                Ok(outcome) => outcomes.push(outcome),
                Err(e @ (LabError::Interrupted | LabError::Needs { .. })) => return Err(e),
                Err(e) => missing.push(format!("{name} was left out: {e}.")),
            }
            progress.done(seconds(&cell, &lengths));
        }
    }
    drop((progress, shared));
    setup.machine.finish();
    latency_report::report(setup, &lengths, &outcomes, missing)
}

fn seconds(cell: &Cell, lengths: &Lengths) -> f64 {
    match cell.part {
        Part::Fairness { .. } => 1.0 + lengths.shares_s,
        Part::Hackbench { .. } => 0.5 + f64::from(lengths.loops) / 400.0,
        _ => 0.3 + lengths.warm_s + lengths.window_s,
    }
}

fn cells(groups: &[u32], engine: Engine, virtual_time: bool) -> Vec<Cell> {
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
