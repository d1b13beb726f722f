//! Soft caps: on each CPU a hog under one soft cap for all of them, and a newcomer that wants the whole CPU from some
//! moment on. What the hogs get alone and beside it, and how soon they have yielded, read each millisecond from outside.

use crate::beds::host::Setup;
use crate::beds::host::arms::plain;
use crate::beds::host::cgroup::Group;
use crate::beds::host::proc::{Worker, WorkerPlan};
use crate::beds::host::samplers::sample_during;
use crate::beds::host::scheduler::Shared;
use crate::beds::host::tidegate::Tidegate;
use crate::experiments::settle::{Point, Trace};
use crate::{Engine, LabError, clock, stop};

/// Soft caps that are tried, ‰ of one CPU.
const CAPS: [u32; 3] = [0, 100, 300];
const STEPS: u32 = 5;
const STEPS_QUICK: u32 = 2;
/// Alone, then beside the newcomer.
const ALONE_S: f64 = 1.0;
const BESIDE_S: f64 = 2.0;

/// How the hogs are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Not at all: they and the newcomer are equals.
    Nothing,
    /// A group with cpu.idle, made by hand.
    CpuIdle,
    /// `tidegate run --cap-soft`.
    Tidegate(u32),
    /// The ext engine with a gate for the hogs' group.
    Ext(u32),
}

impl Cell {
    /// In tables.
    pub fn label(self) -> String {
        match self {
            Cell::Nothing => "nothing".into(),
            Cell::CpuIdle => "cpu.idle by hand".into(),
            Cell::Tidegate(ppt) => format!("Tidegate, soft cap {ppt} ‰"),
            Cell::Ext(ppt) => format!("ext engine, soft cap {ppt} ‰"),
        }
    }

    /// In JSON and CSV.
    pub fn key(self) -> String {
        match self {
            Cell::Nothing => "nothing".into(),
            Cell::CpuIdle => "cpu_idle".into(),
            Cell::Tidegate(ppt) => format!("tidegate_{ppt}"),
            Cell::Ext(ppt) => format!("ext_{ppt}"),
        }
    }

    /// What the hogs may have beside the newcomer, percent of the machine.
    pub fn due_pct(self, cpus: usize) -> f64 {
        match self {
            Cell::Nothing => 50.0,
            Cell::CpuIdle => 0.0,
            Cell::Tidegate(ppt) | Cell::Ext(ppt) => f64::from(ppt) / 10.0 / cpus as f64,
        }
    }
}

/// What was seen.
#[derive(Clone, Debug)]
pub struct Soft {
    /// Of what.
    pub cell: Cell,
    /// Time until the hogs were within 5 points of what they may have, in each step; infinite where they never were.
    pub yields_ms: Vec<f64>,
    /// The hogs' use alone, percent of the machine.
    pub alone_pct: f64,
    /// ... and beside the newcomer, once it had been there for a second.
    pub beside_pct: f64,
}

/// All of them.
pub fn cells(engine: Engine) -> Vec<Cell> {
    let mut cells = vec![Cell::Nothing, Cell::CpuIdle];
    cells.extend(CAPS.map(Cell::Tidegate));
    if engine == Engine::Ext {
        cells.extend(CAPS.map(Cell::Ext));
    }
    cells
}

fn steps(quick: bool) -> u32 {
    if quick { STEPS_QUICK } else { STEPS }
}

/// The terms of the gate that keeps a soft cap under ext.
fn terms(ppt: u32) -> String {
    format!("cap_soft={ppt}‰ cap_scope=group")
}

/// Those of all of them.
pub fn gates() -> Vec<String> {
    CAPS.map(terms).to_vec()
}

/// What one takes.
pub fn seconds(quick: bool) -> f64 {
    1.0 + f64::from(steps(quick)) * (ALONE_S + BESIDE_S)
}

/// Measures one.
pub fn measure(
    setup: &Setup,
    cell: Cell,
    tidegate: Option<&Tidegate>,
    ext: Option<&Shared>,
    quick: bool,
) -> Result<Soft, LabError> {
    let h = setup.need_hierarchy()?;
    let cpus = setup.machine.cpus;
    // Both in groups of their own, as equals.
    let (old, new) = (Group::create(h, "capped")?, Group::create(h, "newcomer")?);
    if cell == Cell::CpuIdle {
        old.set_idle()?;
    }
    let plan = |kind, args: &[&str]| WorkerPlan {
        exe: &setup.exe,
        kind,
        args: args.iter().map(|a| (*a).to_string()).collect(),
        threads: cpus,
    };
    let join = match (cell, ext) {
        (Cell::Ext(ppt), Some(ext)) => ext.group(&terms(ppt))?.membership(),
        _ if tidegate.is_some() => Vec::new(),
        _ => old.membership(),
    };
    let hogs = Worker::start(
        &plan("hog", &["--pin", "1"]),
        &join,
        &|words| match (cell, tidegate) {
            (Cell::Tidegate(ppt), Some(t)) => t.run(&["--cap-soft", &format!("{ppt}‰")], words),
            _ => plain(words),
        },
    )?;
    let newcomer = Worker::start(
        &plan("constant", &["--level", "0"]),
        &new.membership(),
        &plain,
    )?;
    stop::sleep_ns(1_000_000_000)?;
    let mut soft = Soft {
        cell,
        yields_ms: Vec::new(),
        alone_pct: 0.0,
        beside_pct: 0.0,
    };
    let n = steps(quick);
    for _ in 0..n {
        let (yields_ms, alone_pct, beside_pct) = step(&newcomer, &hogs, cell.due_pct(cpus), cpus)?;
        soft.yields_ms.push(yields_ms);
        soft.alone_pct += alone_pct / f64::from(n);
        soft.beside_pct += beside_pct / f64::from(n);
    }
    ext.map_or(Ok(()), Shared::still_in_force)?;
    Ok(soft)
}

/// The newcomer comes and goes once.
fn step(
    new: &Worker,
    hogs: &Worker,
    due_pct: f64,
    cpus: usize,
) -> Result<(f64, f64, f64), LabError> {
    let ns = |s: f64| (s * 1e9) as u64;
    let (times, samples) = sample_during(&new.page, &hogs.page, || {
        let now = clock::monotonic_ns();
        let (comes, goes) = (now + ns(ALONE_S), now + ns(ALONE_S + BESIDE_S));
        new.page.order_level(1_000_000, comes, now);
        stop::sleep_until(comes + 5_000_000)?;
        new.page.order_level(0, goes, clock::monotonic_ns());
        stop::sleep_until(goes)?;
        Ok::<_, LabError>((comes, goes))
    });
    let (comes, goes) = times?;
    let points: Vec<Point> = samples.iter().map(Point::from).collect();
    let trace = Trace {
        points: &points,
        cpus: cpus as f64,
    };
    let short = || LabError::process("soft caps", "the trace does not cover the newcomer's time");
    let down = trace.step_down(comes, due_pct, goes).ok_or_else(short)?;
    let beside = trace
        .rate_pct(comes + 1_000_000_000, goes - 5_000_000)
        .ok_or_else(short)?;
    Ok((down.settle_ms, down.old_pct, beside))
}
