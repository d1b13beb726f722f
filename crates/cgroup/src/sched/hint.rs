//! A gate's hint on its tasks: who has it, who lacks it, and how all of it is taken back.
//!
//! The kernel does not say whether a slice is a task's own: what reads as the default is taken for
//! it, what reads as ours for ours, and anything else for another program's. What was another
//! program's when the hint came is written down first, and put back afterwards; what becomes so
//! later is left alone.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::tasks::{self, TaskId, Whose};
use super::{BATCH, EXT, HintSetting, IDLE, NORMAL, SchedWrite, Support, TaskSched};
use crate::group::{GroupPath, GroupResult, Groups};
use crate::{KernelFs, KfsError, KfsResult};

/// A task forks, and its child is found by the next pass: as many as forks may come in between.
pub const PASSES_MAX: u32 = 16;
/// Tasks of one gate that may have had another slice before: the ledger has a line for each.
pub const BEFORE_MAX: usize = 4_096;
/// Tasks that are looked at in one pass; with more, the sweep comes to them.
pub const TASKS_MAX: usize = 50_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    pub task: TaskId,
    pub was: HintSetting,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    pub hint: i8,
    pub ours: HintSetting,
    pub whose: Whose,
    /// It is for a command that we started, and stays until that ends.
    pub run: bool,
    /// The processes that were there when it came, where what they fork is not to have it.
    pub only: Option<Vec<TaskId>>,
    pub before: Vec<Before>,
}

#[derive(Clone, Debug, Default)]
pub struct Apart {
    pub groups: Vec<GroupPath>,
    pub tids: BTreeSet<i32>,
}

pub fn ticks(at_boot_ns: u64) -> u64 {
    at_boot_ns / (1_000_000_000 / rustix::param::clock_ticks_per_second().max(1))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Ours,
    Lacks,
    Other(HintSetting),
    /// Real-time or deadline: a hint is of no account.
    RealTime,
    /// SCHED_IDLE: the kernel gives it no slice.
    Idle,
}

pub fn standing(task: &TaskSched, ours: HintSetting, is_default: impl Fn(u64) -> bool) -> Standing {
    match (task.policy, ours) {
        (IDLE, _) => Standing::Idle,
        (BATCH, HintSetting::Batch) => Standing::Ours,
        (NORMAL | EXT, HintSetting::Batch) => Standing::Lacks,
        (NORMAL | BATCH | EXT, HintSetting::SliceNs(ours_ns)) => match task.slice_ns {
            same if same == ours_ns => Standing::Ours,
            default if is_default(default) => Standing::Lacks,
            other => Standing::Other(HintSetting::SliceNs(other)),
        },
        _ => Standing::RealTime,
    }
}

/// Gives a task a slice or SCHED_BATCH. Its nice level, policy and reset-on-fork stay.
pub fn give(fs: &dyn KernelFs, tid: i32, to: HintSetting) -> KfsResult<()> {
    let now = fs.sched(tid)?;
    let write = match to {
        HintSetting::SliceNs(slice_ns) => SchedWrite::Slice {
            nice: now.nice,
            slice_ns,
        },
        HintSetting::Batch => SchedWrite::Policy {
            policy: BATCH,
            nice: now.nice,
            reset_on_fork: now.reset_on_fork,
            slice_ns: 0,
        },
    };
    fs.set_sched(tid, &write)
}

/// Takes the hint `ours` from a task: back to the default.
pub fn take(fs: &dyn KernelFs, tid: i32, ours: HintSetting) -> KfsResult<()> {
    match ours {
        HintSetting::SliceNs(_) => give(fs, tid, HintSetting::SliceNs(0)),
        HintSetting::Batch => {
            let now = fs.sched(tid)?;
            let policy = SchedWrite::Policy {
                policy: NORMAL,
                nice: now.nice,
                reset_on_fork: now.reset_on_fork,
                slice_ns: 0,
            };
            fs.set_sched(tid, &policy)
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HintCensus {
    pub ours: Vec<i32>,
    pub lacking: Vec<i32>,
    pub others: Vec<(i32, HintSetting)>,
    pub real_time: u64,
    pub idle: u64,
}

/// Looks at tasks; those that have exited are left out.
pub fn inspect(
    fs: &dyn KernelFs,
    tids: &[i32],
    ours: HintSetting,
    support: &Support,
) -> KfsResult<HintCensus> {
    let mut seen = HintCensus::default();
    for tid in tids {
        let task = match fs.sched(*tid) {
            Err(error) if error.is_gone() => continue,
            task => task?,
        };
        match standing(&task, ours, |slice_ns| support.is_default(slice_ns)) {
            Standing::Ours => seen.ours.push(*tid),
            Standing::Lacks => seen.lacking.push(*tid),
            Standing::Other(was) => seen.others.push((*tid, was)),
            Standing::RealTime => seen.real_time += 1,
            Standing::Idle => seen.idle += 1,
        }
    }
    Ok(seen)
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undone {
    pub back: u64,
    /// Tasks that had neither the hint nor the default: another program's doing since.
    pub others: u64,
    pub failed: Option<KfsError>,
}

/// Takes a hint back from all tasks that have it. `at_boot_ns` is when it came, on the clock that
/// counts from boot.
pub fn undo(
    groups: &Groups,
    group: &GroupPath,
    latency: &Latency,
    at_boot_ns: u64,
    apart: &Apart,
) -> GroupResult<Undone> {
    let fs = &**groups.fs();
    let support = super::probe(fs).ok();
    let mut undone = Undone::default();
    for pass in 0..PASSES_MAX {
        let mut tids = tasks::list(groups, group, latency.whose, &apart.groups, usize::MAX)?.tids;
        if let Some(task) = latency.whose.task() {
            tids.extend(tasks::heirs(fs, task, ticks(at_boot_ns)));
        }
        tids.retain(|tid| !apart.tids.contains(tid));
        // Those that were written down may have left the group since.
        tids.extend(latency.before.iter().map(|before| before.task.tid));
        tids.sort_unstable();
        tids.dedup();
        let found = undone.back;
        for tid in tids {
            let stands = undo_one(fs, tid, latency, support.as_ref(), &mut undone);
            // Later, what was put back reads as another's, too.
            undone.others += u64::from(pass == 0 && matches!(stands, Some(Standing::Other(_))));
        }
        if undone.back == found || undone.failed.is_some() {
            break;
        }
    }
    Ok(undone)
}

fn undo_one(
    fs: &dyn KernelFs,
    tid: i32,
    latency: &Latency,
    support: Option<&Support>,
    undone: &mut Undone,
) -> Option<Standing> {
    let task = fs.sched(tid).ok()?;
    let is_default = |slice_ns| support.is_some_and(|support| support.is_default(slice_ns));
    let stands = standing(&task, latency.ours, is_default);
    if stands != Standing::Ours {
        return Some(stands);
    }
    let mut before = latency.before.iter();
    let was = before
        .find(|before| before.task.tid == tid && before.task.lives(fs))
        .map(|before| before.was);
    let done = match was {
        Some(was) if was == latency.ours => return Some(stands),
        // A hint of 0 is what a task has without one.
        None if latency.hint == 0 => return Some(stands),
        Some(was) => give(fs, tid, was),
        None => take(fs, tid, latency.ours),
    };
    match done {
        Ok(()) => undone.back += 1,
        Err(error) if error.is_gone() => {}
        Err(error) => undone.failed = Some(error),
    }
    Some(stands)
}
