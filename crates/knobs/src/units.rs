//! A group for each process or each task of a gate, for caps that count for one alone.
//!
//! What is forked begins in its parent's group and shares that until a [`sweep`] finds it: a cap is never multiplied by a
//! fork, only shared for a while. A sweep does a bounded number of moves, so a storm of forks costs no more than a quiet
//! gate, and makes at most [`UNITS_MAX`] groups; what is more shares one. Groups that nobody is in are removed.
//!
//! A unit's quota stands before anybody is in it. Real-time tasks are left where they are: no cap is for them, and v1 with
//! RT_GROUP_SCHED would refuse them anyway.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::group::{GroupError, GroupPath, GroupResult, Groups};
use crate::kfs::KernelFs;
use crate::target::stat_field;

/// Groups of one gate; what is beyond them shares the last.
pub const UNITS_MAX: usize = 512;
/// Rounds of moving back; each finds what was forked during the one before.
const ROUNDS_MAX: u32 = 20;
/// Tasks that one sweep looks at.
const LOOKS_MAX: usize = 256;
/// The unit of those that have none of their own; no task has this number.
const SHARED: i32 = 0;

/// Whose group one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// One process's, with all its threads.
    Process,
    /// One thread's.
    Task,
}

/// Where a gate's units are and how they are called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Family {
    /// The gate's group.
    pub group: GroupPath,
    /// The group in which the units are: the gate's own, or that in which it is itself.
    pub dir: GroupPath,
    /// How their names begin.
    pub stem: String,
    /// Whose they are.
    pub per: Per,
    /// v2: they are threaded groups, because processes are beside them in one domain.
    pub threaded: bool,
    /// They are put into the background and out of it.
    pub yields: bool,
}

impl Family {
    /// The group of one process or task.
    pub fn path_of(&self, id: i32) -> GroupResult<GroupPath> {
        Ok(self.dir.join(&format!("{}{id}", self.stem))?)
    }

    /// Whose group it is, if it is one of these.
    pub fn id_of(&self, group: &GroupPath) -> Option<i32> {
        if group.parent().as_ref() != Some(&self.dir) {
            return None;
        }
        let id = group.name().strip_prefix(self.stem.as_str())?;
        let plain = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
        id.parse().ok().filter(|_| plain)
    }

    /// Every unit that is there.
    pub fn list(&self, groups: &Groups) -> GroupResult<Vec<(i32, GroupPath)>> {
        let children = match groups.children(&self.dir) {
            Err(error) if error.is_gone() => return Ok(Vec::new()),
            children => children?,
        };
        let one = |group: GroupPath| Some((self.id_of(&group)?, group));
        Ok(children.into_iter().filter_map(one).collect())
    }
}

/// What a sweep did and found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Units that are there now.
    pub units: usize,
    /// Processes or tasks that got one of their own, or the shared one.
    pub moved: usize,
    /// Units that were removed.
    pub removed: usize,
    /// More are to be moved than one sweep does.
    pub more: bool,
    /// There is no unit left, so that some share one.
    pub sharing: bool,
    /// Real-time tasks that were left alone.
    pub real_time: BTreeSet<i32>,
    /// The last refusal.
    pub refused: Option<String>,
}

struct Sweep<'a> {
    groups: &'a Groups,
    family: &'a Family,
    furnish: &'a mut dyn FnMut(&GroupPath) -> GroupResult<()>,
    left: usize,
    done: BTreeSet<i32>,
    swept: Swept,
}

/// Gives processes or tasks of the gate a group of their own, at most `moves_max`. `furnish` writes a new unit's values,
/// before anybody is in it.
///
/// # Errors
/// The gate's own group cannot be read.
pub fn sweep(
    groups: &Groups,
    family: &Family,
    moves_max: usize,
    furnish: &mut dyn FnMut(&GroupPath) -> GroupResult<()>,
) -> GroupResult<Swept> {
    let mut sweep = Sweep {
        groups,
        family,
        furnish,
        left: moves_max,
        done: BTreeSet::new(),
        swept: Swept::default(),
    };
    let units = family.list(groups)?;
    sweep.swept.units = units.len();
    sweep.place(&groups.tids(&family.group)?, None);
    for (id, unit) in units {
        let tids = match groups.tids(&unit) {
            Err(error) if error.is_gone() => continue,
            tids => tids?,
        };
        if tids.is_empty() {
            sweep.remove(&unit);
        } else {
            sweep.place(&tids, Some(id));
        }
    }
    Ok(sweep.swept)
}

impl Sweep<'_> {
    /// Moves those of `tids` that belong elsewhere than in unit `here`.
    fn place(&mut self, tids: &[i32], here: Option<i32>) {
        // Those that share stay together, or each sweep would look at all of them.
        if here == Some(SHARED) && self.swept.units >= UNITS_MAX {
            self.swept.sharing = true;
            return;
        }
        let mut looks = LOOKS_MAX;
        // Tasks of another pid namespace read as 0.
        for tid in tids.iter().copied().filter(|tid| *tid > 0) {
            if here == Some(tid) || self.done.contains(&tid) {
                continue;
            }
            if looks == 0 || self.left == 0 {
                self.swept.more = true;
                return;
            }
            looks -= 1;
            let Some(id) = self.id_of(tid) else { continue };
            if here == Some(id) || !self.done.insert(id) {
                continue;
            }
            if self.family.per == Per::Task && is_real_time(&**self.groups.fs(), tid) {
                self.swept.real_time.insert(tid);
                continue;
            }
            match self.settle(id, here) {
                Ok(()) => {}
                Err(error) if error.is_gone() => {}
                Err(GroupError::RealTime { tids, .. }) => self.swept.real_time.extend(tids),
                Err(error) => self.swept.refused = Some(error.to_string()),
            }
        }
    }

    fn id_of(&self, tid: i32) -> Option<i32> {
        match self.family.per {
            Per::Task => Some(tid),
            Per::Process => process_of(&**self.groups.fs(), tid),
        }
    }

    /// Puts one into its own unit; where there is none left, into the shared one, unless it shares one already.
    fn settle(&mut self, id: i32, here: Option<i32>) -> GroupResult<()> {
        let own = self.family.path_of(id)?;
        let is_there = self.groups.exists(&own);
        let unit = if is_there || self.swept.units < UNITS_MAX - 1 {
            own
        } else {
            self.swept.sharing = true;
            if here.is_some() {
                return Ok(());
            }
            self.family.path_of(SHARED)?
        };
        let made = self.make(&unit)?;
        self.left -= 1;
        let moved = match self.family.per {
            Per::Process => self.groups.place(&unit, id).map(drop),
            Per::Task => self.groups.place_task(&unit, id),
        };
        if moved.is_err() && made {
            self.remove(&unit);
        }
        self.swept.moved += usize::from(moved.is_ok());
        moved
    }

    fn make(&mut self, unit: &GroupPath) -> GroupResult<bool> {
        if self.groups.exists(unit) {
            return Ok(false);
        }
        self.groups.create_unit(unit, self.family.threaded)?;
        self.swept.units += 1;
        if let Err(error) = (self.furnish)(unit) {
            // Without its cap nobody may be in it.
            self.remove(unit);
            return Err(error);
        }
        Ok(true)
    }

    fn remove(&mut self, unit: &GroupPath) {
        match self.groups.remove(unit) {
            // Somebody has come in: the next sweep looks again.
            Ok(_) | Err(GroupError::Busy { .. }) => {}
            Err(error) => self.swept.refused = Some(error.to_string()),
        }
        if !self.groups.exists(unit) {
            self.swept.units = self.swept.units.saturating_sub(1);
            self.swept.removed += 1;
        }
    }
}

/// Moves everybody back into the gate's group and removes the units; true when none is left.
///
/// # Errors
/// The units cannot be listed.
pub fn dissolve(groups: &Groups, family: &Family) -> GroupResult<bool> {
    for _ in 0..ROUNDS_MAX {
        let units = family.list(groups)?;
        if units.is_empty() {
            return Ok(true);
        }
        for (_, unit) in units {
            let tids = groups.tids(&unit).unwrap_or_default();
            let mut moved = BTreeSet::new();
            for tid in tids {
                let back = match family.per {
                    Per::Task => groups.place_task(&family.group, tid),
                    Per::Process => match process_of(&**groups.fs(), tid) {
                        Some(pid) if moved.insert(pid) => {
                            groups.place(&family.group, pid).map(drop)
                        }
                        _ => Ok(()),
                    },
                };
                match back {
                    Err(error) if !error.is_gone() => {
                        tracing::warn!(%error, "a task stays in the group of its own");
                    }
                    _ => {}
                }
            }
            match groups.remove(&unit) {
                Err(GroupError::Busy { .. }) => {}
                removed => {
                    removed?;
                }
            }
        }
    }
    Ok(family.list(groups)?.is_empty())
}

/// The process that a task belongs to; `None` when it has exited.
fn process_of(fs: &dyn KernelFs, tid: i32) -> Option<i32> {
    let status = fs.read(Path::new(&format!("/proc/{tid}/status"))).ok()?;
    let tgid = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    tgid.trim().parse().ok()
}

/// SCHED_FIFO, SCHED_RR and SCHED_DEADLINE, field 41 of proc_pid_stat(5).
fn is_real_time(fs: &dyn KernelFs, tid: i32) -> bool {
    let stat = fs
        .read(Path::new(&format!("/proc/{tid}/stat")))
        .unwrap_or_default();
    matches!(stat_field(&stat, 41), Some(1 | 2 | 6))
}

/// Threads of `group` and the groups in it that no cap acts on, by number and name: real-time ones. At most `max` are looked
/// for among the first [`LOOKS_MAX`].
pub fn exempt(groups: &Groups, group: &GroupPath, max: usize) -> BTreeMap<i32, String> {
    let mut found = BTreeMap::new();
    let fs = &**groups.fs();
    for tid in groups
        .tids(group)
        .unwrap_or_default()
        .into_iter()
        .take(LOOKS_MAX)
    {
        if found.len() < max && tid > 0 && is_real_time(fs, tid) {
            let comm = fs
                .read(Path::new(&format!("/proc/{tid}/comm")))
                .unwrap_or_default();
            found.insert(tid, comm.trim().to_owned());
        }
    }
    found
}
