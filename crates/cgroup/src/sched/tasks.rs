//! Which tasks a hint is for: those of a group with the groups in it, or the threads of one
//! process.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::KernelFs;
use crate::group::{GroupPath, GroupResult, Groups};
use crate::target::{ProcessRef, is_kernel_thread, process_of, stat_field, threads_of};

const DEPTH_MAX: u32 = 16;
const HEIRS_MAX: usize = 20_000;

/// A process or a thread, told from a later one with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TaskId {
    pub tid: i32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
}

impl TaskId {
    /// The task with this number now; `None` for none, one that has exited, and a kernel thread.
    pub fn now(fs: &dyn KernelFs, tid: i32) -> Option<Self> {
        // Not /proc/TID/stat, which adds up all threads of its process.
        let path = format!("/proc/{tid}/task/{tid}/stat");
        let stat = fs.read(Path::new(&path)).ok()?;
        let start_ticks = stat_field(&stat, 22)?;
        (!is_kernel_thread(&stat)?).then_some(Self { tid, start_ticks })
    }

    pub fn lives(&self, fs: &dyn KernelFs) -> bool {
        Self::now(fs, self.tid) == Some(*self)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    /// Those of the group, and of the groups in it.
    Group,
    Process(TaskId),
    Thread(TaskId),
}

impl Whose {
    /// The process or thread; `None` for a group's tasks.
    pub fn task(&self) -> Option<TaskId> {
        match self {
            Self::Group => None,
            Self::Process(task) | Self::Thread(task) => Some(*task),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tids {
    pub tids: Vec<i32>,
    pub more: bool,
}

/// The tasks of `whose`, at most `max`. Groups in `apart` have a hint of their own.
pub fn list(
    groups: &Groups,
    group: &GroupPath,
    whose: Whose,
    apart: &[GroupPath],
    max: usize,
) -> GroupResult<Tids> {
    let mut found = Tids::default();
    match whose {
        Whose::Process(process) => found.tids = threads(&**groups.fs(), process),
        Whose::Thread(thread) if thread.lives(&**groups.fs()) => found.tids = vec![thread.tid],
        Whose::Thread(_) => {}
        Whose::Group => {
            let mut open = vec![(group.clone(), DEPTH_MAX)];
            while let Some((at, depth)) = open.pop() {
                match groups.tids(&at) {
                    Ok(tids) => found.tids.extend(tids),
                    Err(error) if error.is_gone() && at != *group => continue,
                    Err(error) => return Err(error),
                }
                if found.tids.len() > max {
                    break;
                }
                let children = groups.children(&at).unwrap_or_default();
                let inside = children.into_iter().filter(|child| !apart.contains(child));
                if depth > 0 {
                    open.extend(inside.map(|child| (child, depth - 1)));
                }
            }
        }
    }
    found.more = found.tids.len() > max;
    found.tids.truncate(max);
    // Tasks of another pid namespace read as 0.
    found.tids.retain(|tid| *tid > 0);
    found.tids.sort_unstable();
    found.tids.dedup();
    Ok(found)
}

pub fn threads(fs: &dyn KernelFs, process: TaskId) -> Vec<i32> {
    let tids = threads_of(fs, process.tid);
    // Listed first and checked after, so that what was listed is what was checked.
    match process.lives(fs) {
        true => tids,
        false => Vec::new(),
    }
}

pub fn processes(fs: &dyn KernelFs, tids: &[i32]) -> BTreeSet<TaskId> {
    let of = |tid: &i32| TaskId::now(fs, process_of(fs, *tid)?);
    tids.iter().filter_map(of).collect()
}

/// What a hint of `task` came to by inheritance since `since_ticks`: later threads of its process,
/// and threads of the processes that this has forked, and of those that these have. One whose
/// parent has exited is not found any more.
pub fn heirs(fs: &dyn KernelFs, task: TaskId, since_ticks: u64) -> Vec<i32> {
    let heirs = descendants(fs, task, since_ticks);
    let mut tids = threads(fs, task);
    tids.retain(|tid| {
        TaskId::now(fs, *tid).is_some_and(|thread| thread.start_ticks >= since_ticks)
    });
    for heir in heirs {
        tids.extend(threads(fs, heir));
        if tids.len() >= HEIRS_MAX {
            break;
        }
    }
    tids
}

/// The processes that `process` has forked since `since_ticks`, and those that these have.
pub fn descendants(fs: &dyn KernelFs, process: TaskId, since_ticks: u64) -> Vec<TaskId> {
    let mut found = Vec::new();
    let mut open = vec![process];
    while let Some(parent) = open.pop() {
        for tid in threads(fs, parent) {
            let path = format!("/proc/{}/task/{tid}/children", parent.tid);
            let text = fs.read(Path::new(&path)).unwrap_or_default();
            let children = text
                .split_ascii_whitespace()
                .filter_map(|word| TaskId::now(fs, word.parse().ok()?))
                .filter(|child| child.start_ticks >= since_ticks);
            for child in children {
                found.push(child);
                open.push(child);
            }
        }
        if found.len() >= HEIRS_MAX {
            break;
        }
    }
    found
}

pub fn process_lives(fs: &dyn KernelFs, pid: i32, start_ticks: u64) -> bool {
    ProcessRef::look_up(fs, pid).is_ok_and(|now| now.start_ticks == start_ticks)
}
