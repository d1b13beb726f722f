//! `tidegate lab latency --on sim`: latency hints, as the latency-nice series measured them (cyclictest beside
//! hackbench, and hackbench itself), on the latency-nice series' fair class and on today's.

use tidegate_sim::workloads::{Common, Cyclictest, Hackbench, Hog, Kind};
use tidegate_sim::{GroupId, Machine, MachineConfig, Simulation};

use super::report::{BESIDE_TASKS, HintRuns, Outcome, Run, Way};
use super::{BESIDE_GROUPS, Beside, Part, SENSITIVE, YIELDING, worst_off_pct};
use crate::LabError;
use crate::beds::Simulated;
use crate::beds::sim::classes::Class;
use crate::beds::sim::{MS, S, Stage, advance, built, derive, latency, plain};
use crate::experiments::published::{CYCLICTEST, HACKBENCH};
use crate::options::LabOptions;
use crate::report::{Headline, Report, Sample, Samples};

/// The machine's size; the series does not name its own.
pub const CPUS: u32 = 8;
/// Senders, and receivers, of a group.
const PAIRS: u32 = 20;
/// Work on a message beside its system call: 100 bytes copied and looked at.
const MESSAGE_NS: u64 = 500;
/// A pipe holds 64 KiB.
const PIPE_MESSAGES: u32 = 655;
/// Messages of the latency-nice series' hackbench from a sender to a receiver, over its groups.
const PUBLISHED_LOOPS: u32 = 2560;
const HOGS: u32 = 3;
/// What the hinting task asks for in each 4 ms: 44 %, more than its quarter.
const ASKED_NS: u64 = 1_760_000;

/// One simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The scheduler.
    class: Class,
    /// What runs; hackbench is beside cyclictest in the same group, or not at all.
    part: Part,
    /// The hint, 0 for none.
    hint: i8,
    /// CPUs of its machine.
    cpus: u32,
}

fn way(class: Class, hinted: bool) -> Way {
    Way {
        key: class.key(),
        label: class.label(),
        hinted,
    }
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
        loops: PUBLISHED_LOOPS / stage.quick_or(16, 4),
        fairness_s: stage.quick_or(5, 20),
        // Hundreds of millions of events; the quick form, which the tests run, checks.
        check: options.quick,
    };
    let cpus = stage.sizes(&[CPUS])[0];
    let cells = cells(cpus, stage.quick_or(&[1, 4][..], &[1, 4, 8, 16][..]));
    let samples = stage.cells(
        &cells,
        |c| match c.part {
            Part::Cyclictest {
                beside: Beside::Together,
            } => 1500 * lengths.cyclictest_s,
            Part::Hackbench { .. } => 4 * u64::from(lengths.loops),
            _ => 50,
        },
        |c| format!("{}, {}, hint {}", c.class.label(), c.part.label(), c.hint),
        |c| simulate(*c, &lengths, options.seed),
    )?;
    let example = config(cells[0], options.seed);
    let bed = stage.bed(&[cpus], &example, "CFS and EEVDF in turn");
    report(bed, samples, lengths.loops)
}

fn cells(cpus: u32, groups: &[u32]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for class in Class::ALL {
        let mut add = |part, hint: i8, cpus| {
            if hint == 0 || class.takes_hints() {
                cells.push(Cell {
                    class,
                    part,
                    hint,
                    cpus,
                });
            }
        };
        for hint in [0, SENSITIVE] {
            for beside in [Beside::Nothing, Beside::Together] {
                add(Part::Cyclictest { beside }, hint, cpus);
            }
            for hog in [false, true] {
                add(Part::Fairness { hog }, hint, 1);
            }
        }
        for &groups in groups {
            for hint in [0, YIELDING] {
                add(Part::Hackbench { groups }, hint, cpus);
            }
        }
    }
    cells
}

fn report(bed: Simulated, samples: Vec<Sample<Run>>, loops: u32) -> Result<Report, LabError> {
    let found = HintRuns {
        samples: Samples(samples),
        head: "scheduler",
    };
    let mut timers = Vec::new();
    for class in Class::ALL {
        for beside in [Beside::Nothing, Beside::Together] {
            timers.extend([false, true].map(|hinted| (way(class, hinted), beside)));
        }
    }
    let both = Class::ALL.map(|class| (way(class, false), way(class, true)));
    let mut report = Report::new("latency", bed);
    report.rows = found.samples.rows();
    report.add_always_measured(headline(&found));
    report.tables = vec![
        found.cyclictest(&timers),
        found.hackbench(&both),
        found.fairness(&both.map(|(without, with)| [without, with]).concat()),
    ];
    report.plots.push(found.plot(&timers)?);
    report.notes.push(format!(
        "cyclictest is one thread with a timer each millisecond; beside it runs hackbench -p -g {BESIDE_GROUPS} \
         ({} tasks). hackbench alone sends {loops}/group messages from each sender to each receiver; with a hint, \
         all its tasks have {YIELDING}. Under EEVDF a hint is a slice (sched_setattr), which is what Tidegate can \
         do on a stock kernel; under CFS it is an offset in the wakeup comparison, as in the latency-nice series; \
         under ext an offset of the deadline. Fairness: three hogs and the hinting task on one CPU, worst share \
         against its fair one: an equal part of the CPU where a hog hints; where a task hints that sleeps in \
         between and asks for more than its quarter, each hog's against their mean, and against a quarter \
         where it has less.",
        BESIDE_TASKS
    ));
    report.notes.push(
        "Mechanism: which task runs next and which it preempts, by each class's rules, and by Tidegate's law of hints \
         in ext. The model's: the machine (the series does not name its own), what a switch, a wakeup and a \
         message cost, no interrupts and no sections with preemption off (the series' cyclictest takes 60 us \
         at the least), so compare ratios and shapes, not microseconds."
            .into(),
    );
    Ok(report)
}

fn headline(found: &HintRuns) -> Vec<Headline> {
    let mut lines = Vec::new();
    let p99 = |class, hinted, beside| found.p99(way(class, hinted), beside);
    let (alone, together) = (Beside::Nothing, Beside::Together);
    let hinting = || Class::ALL.into_iter().filter(|c| c.takes_hints());
    for class in hinting() {
        let over = p99(class, true, together) / p99(class, true, alone);
        let name = format!(
            "cyclictest p99 beside hackbench over an idle machine, hint −20: {}",
            class.label()
        );
        let h = Headline::new(&name, over, "×");
        // The latency-nice series is a comparison.
        lines.push(h.when(class != Class::CfsPatched, |h| h.at_most(2.0)));
    }
    let row = CYCLICTEST.iter().find(|r| r.stat == "p99").map(|r| r.b);
    let published = row.map(|(without, with)| f64::from(without) / f64::from(with));
    for class in hinting() {
        let ratio = p99(class, false, together) / p99(class, true, together);
        let name = format!(
            "cyclictest p99 beside hackbench, hint 0 over −20: {}",
            class.label()
        );
        let published = published.filter(|_| class == Class::CfsPatched);
        lines.push(Headline::new(&name, ratio, "×").published(published));
    }
    let name = format!(
        "worst share against its fair one beside a hint of −20: {}",
        Class::Eevdf.label()
    );
    let off = found.unfair_pct(way(Class::Eevdf, true));
    lines.push(Headline::new(&name, off, "%").at_most(1.0));
    for class in hinting() {
        for groups in found.groups() {
            let gain = found.gain_pct(groups, way(class, false), way(class, true));
            let published = HACKBENCH.iter().find(|r| r.groups == groups);
            let name = format!(
                "hackbench, {groups} groups, faster with hints: {}",
                class.label()
            );
            lines.push(Headline::new(&name, gain, "%").published(published.map(|r| r.gain_pct)));
        }
    }
    lines
}

/// The machine of a cell.
pub fn config(c: Cell, seed: u64) -> MachineConfig {
    MachineConfig {
        scheduler: c.class.scheduler(c.cpus),
        ..plain(c.cpus, seed)
    }
}

fn simulate(c: Cell, lengths: &Lengths, seed: u64) -> Result<Sample<Run>, LabError> {
    let mut outcome = Outcome::default();
    match c.part {
        Part::Cyclictest { beside } => cyclictest(&mut outcome, c, beside, lengths, seed)?,
        Part::Hackbench { groups } => outcome.seconds = hackbench(c, groups, lengths, seed)?,
        Part::Fairness { hog } => outcome.unfair_pct = fairness(c, hog, lengths, seed)?,
        // Its workers wake each other through locks that the simulator does not have.
        Part::Schbench => {}
    }
    let (part, way) = (c.part, way(c.class, c.hint != 0));
    let sample = outcome.sample(Run { part, way });
    let sample = sample.with("class", way.key).with("cpus", c.cpus);
    Ok(match part {
        Part::Cyclictest { beside } => sample.with("beside_hackbench", beside != Beside::Nothing),
        _ => sample,
    })
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
    outcome: &mut Outcome,
    c: Cell,
    beside: Beside,
    lengths: &Lengths,
    seed: u64,
) -> Result<(), LabError> {
    let seed = derive(seed, &[1]);
    let mut m = built(Machine::new(MachineConfig {
        check: lengths.check,
        ..config(c, seed)
    }))?;
    let warm_ns = S / 2;
    if beside != Beside::Nothing {
        // It ends never within the run: a message takes at least a microsecond.
        let endless = groups_of(BESIDE_GROUPS, u32::MAX);
        built(endless.build(&common("hackbench", seed), &mut m))?;
    }
    let mut timer = Common {
        record_from_ns: warm_ns,
        ..common("cyclictest", seed)
    };
    c.class.hint(&mut timer, c.hint, c.cpus);
    let kind = Kind::Cyclictest(Cyclictest {
        threads: 1,
        interval_ns: MS,
        distance_ns: 500_000,
        pinned: false,
        work_ns: 0,
        step: None,
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
    outcome.others_pct = 100.0 * others as f64 / capacity as f64;
    Ok(())
}

fn hackbench(c: Cell, groups: u32, lengths: &Lengths, seed: u64) -> Result<f64, LabError> {
    let seed = derive(seed, &[2]);
    let mut m = built(Machine::new(MachineConfig {
        check: lengths.check,
        ..config(c, seed)
    }))?;
    let mut common = common("hackbench", seed);
    c.class.hint(&mut common, c.hint, c.cpus);
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
    Ok(sim.machine.series(finish).max_ns() as f64 / S as f64)
}

/// Three hogs and a task that hints share a CPU. A hinting hog is due as much as each of the others. A task
/// that sleeps in between asks for more than its quarter too, so that a hint could give it more: the hogs are
/// due equal parts, and no less than a quarter of the CPU each.
fn fairness(c: Cell, hog: bool, lengths: &Lengths, seed: u64) -> Result<f64, LabError> {
    let used = shared(c, hog, lengths, seed)?;
    let sharing = if hog { used.len() } else { HOGS as usize };
    let quarter = (lengths.fairness_s * S) as f64 / used.len() as f64;
    Ok(worst_off_pct(&used[..sharing], quarter))
}

/// What each of the hogs and then the hinting task used.
fn shared(c: Cell, hog: bool, lengths: &Lengths, seed: u64) -> Result<Vec<f64>, LabError> {
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
    c.class.hint(&mut hinting, c.hint, c.cpus);
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
