//! `tidegate lab latency --on sim`: latency hints, as the latency-nice series measured them (cyclictest beside
//! hackbench, and hackbench itself), on the latency-nice series' fair class and on today's.

use tidegate_sim::workloads::{Common, Cyclictest, Hackbench, Hog, Kind};
use tidegate_sim::{GroupId, Machine, MachineConfig, Simulation};

use super::classes::Class;
use super::latency_report;
use super::stage::{MS, S, Stage, advance, built, derive, latency, plain};
use crate::LabError;
use crate::dist::Latency;
use crate::options::LabOptions;
use crate::report::Report;
use crate::tables::latency::worst_off_pct;

/// The machine's size; the series does not name its own.
pub const CPUS: u32 = 8;
/// The hint that asks for the least latency, and the one that yields most.
pub const SENSITIVE: i8 = -20;
/// hackbench's, where it has one: it does not preempt.
pub const YIELDING: i8 = 19;
/// Groups of hackbench beside cyclictest (`-g 16`).
pub const BESIDE_GROUPS: u32 = 16;
/// Senders, and receivers, of a group.
const PAIRS: u32 = 20;
/// Work on a message beside its system call: 100 bytes copied and looked at.
const MESSAGE_NS: u64 = 500;
/// A pipe holds 64 KiB.
const PIPE_MESSAGES: u32 = 655;
/// Messages of the latency-nice series' hackbench from a sender to a receiver, over its groups.
const SEED_LOOPS: u32 = 2560;
const HOGS: u32 = 3;
/// What the hinting task asks for in each 4 ms: 44 %, more than its quarter.
const ASKED_NS: u64 = 1_760_000;

/// One simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// cyclictest with this hint, with or without hackbench beside it.
    Cyclictest {
        /// Its hint.
        hint: i8,
        /// Whether hackbench runs.
        beside: bool,
    },
    /// hackbench alone: groups, and its hint.
    Hackbench {
        /// How many.
        groups: u32,
        /// Its hint.
        hint: i8,
    },
    /// One CPU, three hogs, and a task that hints: a hog or one that asks for 44 % of 4 ms.
    Fairness {
        /// Whether the hinting task is a hog too.
        hog: bool,
        /// Its hint.
        hint: i8,
    },
}

/// A part under a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The scheduler.
    pub class: Class,
    /// What runs.
    pub part: Part,
    /// CPUs of its machine.
    pub cpus: u32,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Of what.
    pub cell: Cell,
    /// cyclictest's.
    pub wakeup: Latency,
    /// hackbench's time, or messages that were sent a second beside cyclictest.
    pub seconds: f64,
    /// hackbench's CPU use beside cyclictest, percent of the machine.
    pub beside_pct: f64,
    /// Worst share against its fair one ([`fairness`]), percent of the fair one.
    pub unfair_pct: f64,
}

struct Lengths {
    cyclictest_s: u64,
    loops: u32,
    fairness_s: u64,
    check: bool,
}

/// Runs the experiment.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    let stage = Stage::new(options);
    let lengths = Lengths {
        cyclictest_s: stage.quick_or(1, 5),
        loops: SEED_LOOPS / stage.quick_or(16, 4),
        fairness_s: stage.quick_or(5, 20),
        // Hundreds of millions of events; the quick form, which the tests run, checks.
        check: options.quick,
    };
    let cpus = stage.sizes(&[CPUS])[0];
    let cells = cells(cpus, stage.quick_or(&[1, 4][..], &[1, 4, 8, 16][..]));
    let outcomes = stage.cells(
        &cells,
        |c| match c.part {
            Part::Cyclictest { beside: true, .. } => 1500 * lengths.cyclictest_s,
            Part::Cyclictest { .. } | Part::Fairness { .. } => 50,
            Part::Hackbench { .. } => 4 * u64::from(lengths.loops),
        },
        label,
        |c| simulate(*c, &lengths, options.seed),
    )?;
    latency_report::report(&stage, cpus, lengths.loops, &outcomes)
}

fn cells(cpus: u32, groups: &[u32]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for class in Class::ALL {
        let mut add = |part, cpus| cells.push(Cell { class, part, cpus });
        let hints = |hint: i8| {
            if class.takes_hints() {
                vec![0, hint]
            } else {
                vec![0]
            }
        };
        for hint in hints(SENSITIVE) {
            for beside in [false, true] {
                add(Part::Cyclictest { hint, beside }, cpus);
            }
            for hog in [false, true] {
                add(Part::Fairness { hog, hint }, 1);
            }
        }
        for &groups in groups {
            for hint in hints(YIELDING) {
                add(Part::Hackbench { groups, hint }, cpus);
            }
        }
    }
    cells
}

fn label(c: &Cell) -> String {
    format!("{}, {:?}", c.class.label(), c.part)
}

/// The machine of a cell.
pub fn config(c: Cell, seed: u64) -> MachineConfig {
    MachineConfig {
        scheduler: c.class.scheduler(c.cpus),
        ..plain(c.cpus, seed)
    }
}

fn simulate(c: Cell, lengths: &Lengths, seed: u64) -> Result<Outcome, LabError> {
    let blank = Outcome {
        cell: c,
        wakeup: Latency::default(),
        seconds: f64::NAN,
        beside_pct: f64::NAN,
        unfair_pct: f64::NAN,
    };
    match c.part {
        Part::Cyclictest { hint, beside } => cyclictest(blank, hint, beside, lengths, seed),
        Part::Hackbench { groups, hint } => hackbench(blank, groups, hint, lengths, seed),
        Part::Fairness { hog, hint } => fairness(blank, hog, hint, lengths, seed),
    }
}

fn common(name: &str, seed: u64) -> Common {
    Common {
        seed,
        ..Common::new(name, GroupId::ROOT)
    }
}

fn groups_of(groups: u32, loops: u32) -> Kind {
    Kind::Hackbench(Hackbench {
        groups,
        pairs: PAIRS,
        loops,
        message_ns: MESSAGE_NS,
        capacity: PIPE_MESSAGES,
    })
}

fn cyclictest(
    mut outcome: Outcome,
    hint: i8,
    beside: bool,
    lengths: &Lengths,
    seed: u64,
) -> Result<Outcome, LabError> {
    let c = outcome.cell;
    let seed = derive(seed, &[1]);
    let mut m = built(Machine::new(MachineConfig {
        check: lengths.check,
        ..config(c, seed)
    }))?;
    let warm_ns = S / 2;
    if beside {
        // It ends never within the run: a message takes at least a microsecond.
        let endless = groups_of(BESIDE_GROUPS, u32::MAX);
        built(endless.build(&common("hackbench", seed), &mut m))?;
    }
    let mut timer = Common {
        record_from_ns: warm_ns,
        ..common("cyclictest", seed)
    };
    c.class.hint(&mut timer, hint, c.cpus);
    let kind = Kind::Cyclictest(Cyclictest {
        threads: 1,
        interval_ns: MS,
        distance_ns: 500_000,
        pinned: false,
        work_ns: 0,
    });
    let made = built(kind.build(&timer, &mut m))?;
    let mut sim = Simulation::new(m, Vec::new());
    advance(&mut sim, warm_ns)?;
    let (busy, own) = (
        sim.machine.busy_ns(),
        sim.machine.task_usage_ns(made.tasks[0]),
    );
    advance(&mut sim, warm_ns + lengths.cyclictest_s * S)?;
    let m = &sim.machine;
    outcome.wakeup = latency(m.series(made.series[0].1));
    let others = (m.busy_ns() - busy) - (m.task_usage_ns(made.tasks[0]) - own);
    let capacity = lengths.cyclictest_s * S * u64::from(c.cpus);
    outcome.beside_pct = 100.0 * others as f64 / capacity as f64;
    Ok(outcome)
}

fn hackbench(
    mut outcome: Outcome,
    groups: u32,
    hint: i8,
    lengths: &Lengths,
    seed: u64,
) -> Result<Outcome, LabError> {
    let c = outcome.cell;
    let seed = derive(seed, &[2]);
    let mut m = built(Machine::new(MachineConfig {
        check: lengths.check,
        ..config(c, seed)
    }))?;
    let mut common = common("hackbench", seed);
    c.class.hint(&mut common, hint, c.cpus);
    let made = built(groups_of(groups, lengths.loops / groups).build(&common, &mut m))?;
    let finish = made.series[0].1;
    let tasks = made.tasks.len() as u64;
    let mut sim = Simulation::new(m, Vec::new());
    let mut to_ns = 0;
    while sim.machine.series(finish).count() < tasks {
        to_ns += 50 * MS;
        if to_ns > 600 * S {
            let why = "is not done after 600 simulated seconds";
            return Err(LabError::simulation("hackbench", why));
        }
        advance(&mut sim, to_ns)?;
    }
    outcome.seconds = sim.machine.series(finish).max_ns() as f64 / S as f64;
    Ok(outcome)
}

/// Three hogs and a task that hints share a CPU. A hinting hog is due as much as each of the others. A task
/// that sleeps in between asks for more than its quarter too, so that a hint could give it more: the hogs are
/// due equal parts, and no less than a quarter of the CPU each.
fn fairness(
    mut outcome: Outcome,
    hog: bool,
    hint: i8,
    lengths: &Lengths,
    seed: u64,
) -> Result<Outcome, LabError> {
    let used = shared(outcome.cell, hog, hint, lengths, seed)?;
    let sharing = if hog { used.len() } else { HOGS as usize };
    let quarter = (lengths.fairness_s * S) as f64 / used.len() as f64;
    outcome.unfair_pct = worst_off_pct(&used[..sharing], quarter);
    Ok(outcome)
}

/// What each of the hogs and then the hinting task used.
fn shared(
    c: Cell,
    hog: bool,
    hint: i8,
    lengths: &Lengths,
    seed: u64,
) -> Result<Vec<f64>, LabError> {
    let seed = derive(seed, &[3]);
    let mut m = built(Machine::new(MachineConfig {
        check: lengths.check,
        ..config(c, seed)
    }))?;
    let others = Kind::Hog(Hog {
        tasks: HOGS,
        busy: None,
    });
    let mut all = built(others.build(&common("hog", seed), &mut m))?.tasks;
    let mut hinting = common("hinting", seed);
    c.class.hint(&mut hinting, hint, c.cpus);
    let one = Kind::Hog(Hog {
        tasks: 1,
        busy: (!hog).then_some((ASKED_NS, 4 * MS)),
    });
    all.extend(built(one.build(&hinting, &mut m))?.tasks);
    let mut sim = Simulation::new(m, Vec::new());
    advance(&mut sim, S)?;
    let use_of = |sim: &Simulation| -> Vec<f64> {
        let ns = all.iter().map(|t| sim.machine.task_usage_ns(*t) as f64);
        ns.collect()
    };
    let from = use_of(&sim);
    advance(&mut sim, (1 + lengths.fairness_s) * S)?;
    Ok(use_of(&sim).iter().zip(&from).map(|(b, a)| b - a).collect())
}
