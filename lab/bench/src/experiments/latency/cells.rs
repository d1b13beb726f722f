//! The cells of `tidegate lab latency`: what is started, hinted and read in each.

use std::path::Path;

use super::host_cells::{Cell, How, Lengths};
use super::report::{self, BESIDE_TASKS, Run};
use super::{BESIDE_GROUPS, Beside, Part, SENSITIVE, YIELDING, worst_off_pct};
use crate::beds::host::Setup;
use crate::beds::host::arms::plain;
use crate::beds::host::cgroup::Group;
use crate::beds::host::proc::{Worker, WorkerPlan};
use crate::beds::host::scheduler::Shared;
use crate::beds::host::tidegate::Tidegate;
use crate::dist::Latency;
use crate::loads::attributes;
use crate::report::Sample;
use crate::{LabError, clock, stop};

/// The kernel's range of slices.
const SHORTEST_US: u64 = 100;
const LONGEST_US: u64 = 100_000;
const HOGS: usize = 3;
/// What the hinting task asks for in each 4 ms: 44 %, more than its quarter.
const ASKED_US: (u64, u64) = (1_760, 4_000);
/// The service beside hogs: its workers, its requests' work and their rate.
const SERVICE: (u32, u64, u32) = (4, 1_000, 100);

/// What came of a cell.
struct Outcome {
    of_part: report::Outcome,
    /// The service's requests.
    request: Latency,
    /// Messages that hackbench sent a second beside cyclictest.
    messages_per_s: f64,
    /// What cyclictest used itself, percent of one CPU.
    own_pct: f64,
    /// The slice that the hinting thread has, as the kernel tells it from outside.
    slice_us: Option<f64>,
}

impl Outcome {
    fn sample(&self, cell: Cell) -> Sample<Run> {
        let (part, way) = (cell.part, cell.how.way());
        let sample = self.of_part.sample(Run { part, way });
        let sample = sample.with("how", way.key).with("slice_us", self.slice_us);
        let wakeup = &self.of_part.wakeup;
        match part {
            // Of the moments that were due: what it has missed is in no latency.
            Part::Cyclictest { beside } => sample
                .with("beside", beside.key())
                .with(
                    "kept_pct",
                    100.0 * wakeup.completed as f64 / wakeup.offered as f64,
                )
                .with("own_pct", self.own_pct)
                .with("messages_per_s", self.messages_per_s),
            Part::Schbench => sample.latency("request", &self.request, &["p50", "p99"]),
            _ => sample,
        }
    }
}

/// Everything of a cell in one group, and Tidegate where it hints.
struct Scene<'a> {
    setup: &'a Setup,
    group: Group,
    apart: Group,
    /// What hints under ext, whose hints are a group's; by its weight it is as one task of the other group.
    hinted: Option<&'a Group>,
    tidegate: Option<&'a Tidegate>,
    how: How,
}

impl<'a> Scene<'a> {
    fn new(
        setup: &'a Setup,
        cell: Cell,
        tidegate: Option<&'a Tidegate>,
        ext: Option<&'a Shared>,
    ) -> Result<Self, LabError> {
        let h = setup.need_hierarchy()?;
        let mut scene = Scene {
            setup,
            group: Group::create(h, "both")?,
            apart: Group::create(h, "apart")?,
            hinted: None,
            tidegate,
            how: cell.how,
        };
        if let Some(ext) = ext {
            let hinted = ext.group(&terms(cell))?;
            let (group, own) = weights(cell.part);
            scene.group.set_weight(group)?;
            hinted.set_weight(own)?;
            scene.hinted = Some(hinted);
        }
        Ok(scene)
    }

    fn start(&self, kind: &str, threads: usize, args: &[(&str, u64)]) -> Result<Worker, LabError> {
        self.start_in(&self.group, kind, threads, args)
    }

    fn start_in(
        &self,
        group: &Group,
        kind: &str,
        threads: usize,
        args: &[(&str, u64)],
    ) -> Result<Worker, LabError> {
        let words = args
            .iter()
            .flat_map(|(name, n)| [format!("--{name}"), n.to_string()]);
        let plan = WorkerPlan {
            exe: &self.setup.exe,
            kind,
            args: words.collect(),
            threads,
        };
        Worker::start(&plan, &group.membership(), &plain)
    }

    fn used_ns(&self) -> u64 {
        let hinted = self.hinted.map_or(0, Group::usage_ns);
        self.group.usage_ns() + self.apart.usage_ns() + hinted
    }

    /// Starts what hints. By hand it asks for its slice itself, before it makes any thread.
    fn start_hinting(
        &self,
        kind: &str,
        threads: usize,
        hint: i8,
        args: &[(&str, u64)],
    ) -> Result<Worker, LabError> {
        let slice_us = if hint < 0 { SHORTEST_US } else { LONGEST_US };
        let mut args = args.to_vec();
        if matches!(self.how, How::Slice | How::SliceFull) {
            args.push(("slice-us", slice_us));
        }
        let group = self.hinted.unwrap_or(&self.group);
        let worker = self.start_in(group, kind, threads, &args)?;
        if let Some(tidegate) = self.tidegate {
            tidegate.set(&format!("pid:{}", worker.pid()), &format!("latency={hint}"))?;
        }
        Ok(worker)
    }
}

/// The slice of the newest thread that has checked in.
fn slice_us(worker: &Worker) -> Option<f64> {
    let tid = *worker.page.tids().last()?;
    attributes::slice_ns(tid).map(|ns| ns as f64 / 1000.0)
}

/// Measures one.
pub fn measure(
    setup: &Setup,
    cell: Cell,
    tidegate: Option<&Tidegate>,
    ext: Option<&Shared>,
    lengths: &Lengths,
) -> Result<Sample<Run>, LabError> {
    let scene = Scene::new(setup, cell, tidegate, ext)?;
    let _full = (cell.how == How::SliceFull)
        .then(Preempt::full)
        .transpose()?;
    let mut o = Outcome {
        of_part: report::Outcome::default(),
        request: Latency::default(),
        messages_per_s: f64::NAN,
        own_pct: f64::NAN,
        slice_us: None,
    };
    match cell.part {
        Part::Cyclictest { beside } => cyclictest(&scene, beside, lengths, &mut o)?,
        Part::Hackbench { groups } => hackbench(&scene, groups, lengths, &mut o)?,
        Part::Schbench => schbench(&scene, lengths, &mut o)?,
        Part::Fairness { hog } => {
            o.of_part.unfair_pct = fairness(&scene, hog, lengths, &mut o.slice_us)?
        }
    }
    ext.map_or(Ok(()), Shared::still_in_force)?;
    Ok(o.sample(cell))
}

/// The terms of the gate of what hints; none for what does not.
fn terms(cell: Cell) -> String {
    let hint = match cell.part {
        _ if cell.how == How::ExtNothing => return String::new(),
        Part::Hackbench { .. } => YIELDING,
        _ => SENSITIVE,
    };
    format!("latency={hint}")
}

/// Those of all cells under ext.
pub fn gates() -> Vec<String> {
    let (nothing, hinted) = (How::ExtNothing, How::Ext);
    let hackbench = Part::Hackbench { groups: 1 };
    [
        (Part::Schbench, nothing),
        (Part::Schbench, hinted),
        (hackbench, hinted),
    ]
    .map(|(part, how)| terms(Cell { part, how }))
    .to_vec()
}

/// The weight of the others' group, and of the group of what hints where it is to be one of so many equals.
fn weights(part: Part) -> (u32, u32) {
    match part {
        Part::Cyclictest {
            beside: Beside::Together,
        } => (10_000, 10_000 / BESIDE_TASKS),
        Part::Fairness { .. } => (100 * HOGS as u32, 100),
        _ => (100, 100),
    }
}

fn ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

fn cyclictest(
    scene: &Scene<'_>,
    beside: Beside,
    lengths: &Lengths,
    o: &mut Outcome,
) -> Result<(), LabError> {
    let mut hackbench = None;
    if beside != Beside::Nothing {
        let args = [("groups", u64::from(BESIDE_GROUPS)), ("loops", 0)];
        let group = if beside == Beside::Apart {
            &scene.apart
        } else {
            &scene.group
        };
        let mut worker = scene.start_in(group, "hackbench", 1, &args)?;
        run_hackbench(&mut worker, 60)?;
        hackbench = Some(worker);
    }
    let mut timer = scene.start_hinting("cyclictest", 1, SENSITIVE, &[("interval-us", 1000)])?;
    stop::sleep_ns(ns(lengths.warm_s))?;
    let messages = || hackbench.as_ref().map_or(0, |w| w.page.count());
    timer.ask("measure")?;
    let from = (
        clock::monotonic_ns(),
        scene.used_ns(),
        timer.page.cpu_ns(),
        messages(),
    );
    stop::sleep_ns(ns(lengths.window_s))?;
    let wall_ns = (clock::monotonic_ns() - from.0) as f64;
    let others_ns = (scene.used_ns() - from.1).saturating_sub(timer.page.cpu_ns() - from.2);
    o.messages_per_s = (messages() - from.3) as f64 / wall_ns * 1e9;
    o.of_part.others_pct = 100.0 * others_ns as f64 / wall_ns / scene.setup.machine.cpus as f64;
    o.of_part.wakeup = timer.report("")?;
    o.own_pct = 100.0 * o.of_part.wakeup.cpu_ns as f64 / o.of_part.wakeup.window_ns as f64;
    o.slice_us = slice_us(&timer);
    Ok(())
}

fn run_hackbench(worker: &mut Worker, patience_s: u32) -> Result<f64, LabError> {
    let answer = worker.ask_within("run", patience_s)?;
    if let Some(why) = answer["error"].as_str() {
        return Err(LabError::process("hackbench", why));
    }
    Ok(answer["seconds"].as_f64().unwrap_or(f64::NAN))
}

fn hackbench(
    scene: &Scene<'_>,
    groups: u32,
    lengths: &Lengths,
    o: &mut Outcome,
) -> Result<(), LabError> {
    let loops = u64::from((lengths.loops / groups).max(1));
    let args = [("groups", u64::from(groups)), ("loops", loops)];
    let mut worker = scene.start_hinting("hackbench", 1, YIELDING, &args)?;
    o.slice_us = slice_us(&worker);
    o.of_part.seconds = run_hackbench(&mut worker, 300)?;
    Ok(())
}

fn schbench(scene: &Scene<'_>, lengths: &Lengths, o: &mut Outcome) -> Result<(), LabError> {
    let cpus = scene.setup.machine.cpus;
    let (workers, request_us, per_second) = SERVICE;
    let _hogs = scene.start("hog", 2 * cpus, &[])?;
    let args = [
        ("workers", u64::from(workers)),
        ("request-us", request_us),
        ("per-second", u64::from(per_second) * cpus as u64),
    ];
    let mut service = scene.start_hinting("schbench", workers as usize + 1, SENSITIVE, &args)?;
    stop::sleep_ns(ns(lengths.warm_s))?;
    service.ask("measure")?;
    stop::sleep_ns(ns(lengths.window_s))?;
    o.of_part.wakeup = service.report("wakeup")?;
    o.request = service.report("request")?;
    o.slice_us = slice_us(&service);
    Ok(())
}

/// Three hogs, each a process of its own, and the hinting task on the first CPU.
fn fairness(
    scene: &Scene<'_>,
    hog: bool,
    lengths: &Lengths,
    slice: &mut Option<f64>,
) -> Result<f64, LabError> {
    let pinned = ("pin", 1);
    let mut all = Vec::new();
    for _ in 0..HOGS {
        all.push(scene.start("hog", 1, &[pinned])?);
    }
    let asked = [pinned, ("work-us", ASKED_US.0), ("period-us", ASKED_US.1)];
    let args = if hog { &asked[..1] } else { &asked[..] };
    all.push(scene.start_hinting("hog", 1, SENSITIVE, args)?);
    stop::sleep_ns(1_000_000_000)?;
    let used = || {
        all.iter()
            .map(|w| w.page.cpu_ns() as f64)
            .collect::<Vec<f64>>()
    };
    let (from_ns, from) = (clock::monotonic_ns(), used());
    stop::sleep_ns(ns(lengths.shares_s))?;
    let wall_ns = (clock::monotonic_ns() - from_ns) as f64;
    let used: Vec<f64> = used().iter().zip(&from).map(|(b, a)| b - a).collect();
    *slice = all.last().and_then(slice_us);
    let sharing = if hog { used.len() } else { HOGS };
    // What nobody could have (interrupts, the lab itself) is no hog's loss: a quarter of what all had.
    let quarter = used.iter().sum::<f64>().min(wall_ns) / used.len() as f64;
    Ok(worst_off_pct(&used[..sharing], quarter))
}

/// The kernel's preemption mode, put back when dropped.
struct Preempt {
    before: String,
}

const PREEMPT: &str = "/sys/kernel/debug/sched/preempt";

impl Preempt {
    fn full() -> Result<Self, LabError> {
        let fail = |e| LabError::file("switch the kernel's preemption", PREEMPT, e);
        let text = std::fs::read_to_string(PREEMPT).map_err(fail)?;
        let before = text
            .split_once('(')
            .and_then(|(_, rest)| rest.split_once(')'));
        let before = before.map_or("none", |(mode, _)| mode).to_string();
        std::fs::write(Path::new(PREEMPT), "full").map_err(fail)?;
        Ok(Preempt { before })
    }
}

impl Drop for Preempt {
    fn drop(&mut self) {
        let _ = std::fs::write(PREEMPT, &self.before);
    }
}
