//! A group for each process or each task of a gate, for caps that count for one alone.
//!
//! What is forked begins in its parent's group and shares that until a [`sweep`] finds it: a cap is
//! never multiplied by a fork, only shared for a while. A sweep does a bounded number of moves, so
//! a storm of forks costs no more than a quiet gate, and makes a bounded number of groups; tasks
//! beyond that share one. Empty groups are removed.
//!
//! A subgroup has its quota before a task enters it. Real-time tasks are left where they are: no
//! cap is for them, and v1 with RT_GROUP_SCHED would refuse them anyway.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::group::{GroupError, GroupPath, GroupResult, Groups};
use crate::target::threads_of;

mod member;

use member::{Member, is_real_time_now};

/// Groups of one gate; what is beyond them shares the last.
pub const SUBGROUPS_MAX: usize = 512;
/// Rounds of moving back; each finds what was forked during the one before.
const ROUNDS_MAX: u32 = 20;
const SWEEP_TASKS_MAX: usize = 256;
/// The subgroup of those that have none of their own; no task has this number.
const SHARED: i32 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    Process,
    Task,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Family {
    pub group: GroupPath,
    /// The group in which the subgroups are: the gate's own, or that in which it is itself.
    pub dir: GroupPath,
    pub stem: String,
    pub per: Per,
    /// v2: they are threaded groups, because processes are beside them in one domain.
    pub threaded: bool,
    /// They are put into the background and out of it.
    pub yields: bool,
}

impl Family {
    pub fn path_of(&self, id: i32) -> GroupResult<GroupPath> {
        Ok(self.dir.join(&format!("{}{id}", self.stem))?)
    }

    pub fn id_of(&self, group: &GroupPath) -> Option<i32> {
        if group.parent().as_ref() != Some(&self.dir) {
            return None;
        }
        let id = group.name().strip_prefix(self.stem.as_str())?;
        let plain = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
        id.parse().ok().filter(|_| plain)
    }

    pub fn list(&self, groups: &Groups) -> GroupResult<Vec<(i32, GroupPath)>> {
        let children = match groups.children(&self.dir) {
            Err(error) if error.is_gone() => return Ok(Vec::new()),
            children => children?,
        };
        let one = |group: GroupPath| Some((self.id_of(&group)?, group));
        Ok(children.into_iter().filter_map(one).collect())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    pub subgroups: usize,
    /// Processes or tasks that got one of their own, or the shared one.
    pub moved: usize,
    pub removed: Vec<GroupPath>,
    pub more: bool,
    /// Where it stopped, so that the next one goes on there: the subgroup (none: the gate's group)
    /// and the task.
    pub stopped_at: Option<(Option<i32>, i32)>,
    pub sharing: bool,
    pub real_time: BTreeSet<i32>,
    pub refused: Option<String>,
}

#[derive(Clone, Copy, Debug)]
pub struct SweepBudget {
    pub moves: usize,
    /// Groups that the family may have, those of earlier sweeps included.
    pub groups: usize,
}

struct Sweep<'a> {
    groups: &'a Groups,
    family: &'a Family,
    furnish: &'a mut dyn FnMut(&GroupPath) -> GroupResult<()>,
    moves_left: usize,
    groups_max: usize,
    tasks_left: usize,
    done: BTreeSet<i32>,
    swept: SweepReport,
}

/// Gives processes or tasks of the gate a group of their own, within `budget`; goes on `from` where
///  the last sweep stopped. `furnish` writes a new subgroup's values before a task enters it.
pub fn sweep(
    groups: &Groups,
    family: &Family,
    budget: SweepBudget,
    from: Option<(Option<i32>, i32)>,
    furnish: &mut dyn FnMut(&GroupPath) -> GroupResult<()>,
) -> GroupResult<SweepReport> {
    let mut sweep = Sweep {
        groups,
        family,
        furnish,
        moves_left: budget.moves,
        groups_max: budget.groups.min(SUBGROUPS_MAX),
        tasks_left: SWEEP_TASKS_MAX,
        done: BTreeSet::new(),
        swept: SweepReport::default(),
    };
    let mut subgroups = family.list(groups)?;
    subgroups.sort_unstable_by_key(|(id, _)| *id);
    sweep.swept.subgroups = subgroups.len();
    let mut places: Vec<_> = std::iter::once((None, family.group.clone()))
        .chain(
            subgroups
                .into_iter()
                .map(|(id, subgroup)| (Some(id), subgroup)),
        )
        .collect();
    let (first, mut first_tid) = from.unwrap_or_default();
    let index = places.iter().position(|(here, _)| *here >= first);
    places.rotate_left(index.unwrap_or(0));
    if places[0].0 != first {
        first_tid = 0;
    }
    for (here, place) in places {
        sweep.visit(&place, here, std::mem::take(&mut first_tid))?;
    }
    sweep.swept.more &= sweep.swept.moved > 0;
    Ok(sweep.swept)
}

impl Sweep<'_> {
    fn visit(&mut self, place: &GroupPath, here: Option<i32>, first: i32) -> GroupResult<()> {
        let Some(id) = here else {
            self.place(self.groups.tids(place)?, None, first);
            return Ok(());
        };
        // One file tells of most subgroups that no other process is in them, however many threads
        // are.
        let is_whole = self.family.per == Per::Process && !self.family.threaded;
        if is_whole && self.groups.procs(place).is_ok_and(|pids| pids == [id]) {
            return Ok(());
        }
        match self.groups.tids(place) {
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error),
            Ok(tids) if tids.is_empty() => self.remove(place),
            Ok(tids) => self.place(tids, here, first),
        }
        Ok(())
    }

    /// Moves those of `tids`, from `first` on, that belong elsewhere than in subgroup `here`.
    fn place(&mut self, mut tids: Vec<i32>, here: Option<i32>, first: i32) {
        // Those that share stay together, or each sweep would look at all of them.
        if here == Some(SHARED) && self.swept.subgroups >= self.groups_max {
            self.swept.sharing = true;
            return;
        }
        tids.sort_unstable();
        let mut threads = BTreeSet::new();
        // Tasks of another pid namespace read as 0.
        for tid in tids.into_iter().filter(|tid| *tid > 0 && *tid >= first) {
            if here == Some(tid) || self.done.contains(&tid) || threads.contains(&tid) {
                continue;
            }
            if self.tasks_left == 0 || self.moves_left == 0 {
                self.swept.more = true;
                self.swept.stopped_at.get_or_insert((here, tid));
                return;
            }
            self.tasks_left -= 1;
            let Some(member) = Member::look_up(self.groups, self.family, tid) else {
                continue;
            };
            if self.family.per == Per::Process {
                threads.extend(threads_of(&**self.groups.fs(), member.id));
            }
            if here == Some(member.id) || !self.done.insert(member.id) {
                continue;
            }
            if self.family.per == Per::Task && member.is_real_time {
                self.swept.real_time.insert(tid);
                continue;
            }
            match self.settle(&member, here) {
                Ok(()) => {}
                Err(error) if error.is_gone() => {}
                Err(GroupError::RealTime { tids, .. }) => self.swept.real_time.extend(tids),
                Err(error) => self.swept.refused = Some(error.to_string()),
            }
        }
    }

    /// Puts one into its own subgroup; where there is none left, into the shared one, unless it
    /// shares one already.
    fn settle(&mut self, member: &Member, here: Option<i32>) -> GroupResult<()> {
        let own = self.family.path_of(member.id)?;
        let is_there = self.groups.exists(&own);
        let subgroup = if is_there || self.swept.subgroups + 1 < self.groups_max {
            own
        } else {
            self.swept.sharing = true;
            if here.is_some() {
                return Ok(());
            }
            self.family.path_of(SHARED)?
        };
        let made = self.make(&subgroup)?;
        self.moves_left -= 1;
        let moved = member.shift(self.groups, self.family, &subgroup);
        let is_moved = matches!(moved, Ok(true));
        if !is_moved && made {
            self.remove(&subgroup);
        }
        self.swept.moved += usize::from(is_moved);
        moved.map(drop)
    }

    fn make(&mut self, subgroup: &GroupPath) -> GroupResult<bool> {
        if self.groups.exists(subgroup) {
            return Ok(false);
        }
        self.groups
            .create_subgroup(subgroup, self.family.threaded)?;
        self.swept.subgroups += 1;
        if let Err(error) = (self.furnish)(subgroup) {
            // Without its cap no task may be in it.
            self.remove(subgroup);
            return Err(error);
        }
        Ok(true)
    }

    fn remove(&mut self, subgroup: &GroupPath) {
        match self.groups.remove(subgroup) {
            // A task has come in: the next sweep looks again.
            Ok(_) | Err(GroupError::Busy { .. }) => {}
            Err(error) => self.swept.refused = Some(error.to_string()),
        }
        if !self.groups.exists(subgroup) {
            self.swept.subgroups = self.swept.subgroups.saturating_sub(1);
            self.swept.removed.push(subgroup.clone());
        }
    }
}

/// Moves all processes back into the gate's group and removes the subgroups; true when none is
/// left.
pub fn dissolve(groups: &Groups, family: &Family) -> GroupResult<bool> {
    for _ in 0..ROUNDS_MAX {
        let subgroups = family.list(groups)?;
        if subgroups.is_empty() {
            return Ok(true);
        }
        for (_, subgroup) in subgroups {
            let tids = groups.tids(&subgroup).unwrap_or_default();
            let mut moved = BTreeSet::new();
            for tid in tids {
                let Some(member) = Member::look_up(groups, family, tid) else {
                    continue;
                };
                if !moved.insert(member.id) {
                    continue;
                }
                let back = member.shift(groups, family, &family.group);
                match back {
                    Err(error) if !error.is_gone() => {
                        tracing::warn!(%error, "a task stays in the group of its own");
                    }
                    _ => {}
                }
            }
            match groups.remove(&subgroup) {
                Err(GroupError::Busy { .. }) => {}
                removed => {
                    removed?;
                }
            }
        }
    }
    Ok(family.list(groups)?.is_empty())
}

/// Threads of `group` and the groups in it that no cap acts on, by number and name: real-time ones.
/// At most `max` are looked for among the first [`SWEEP_TASKS_MAX`].
pub fn exempt(groups: &Groups, group: &GroupPath, max: usize) -> BTreeMap<i32, String> {
    let mut found = BTreeMap::new();
    let fs = &**groups.fs();
    for tid in groups
        .tids(group)
        .unwrap_or_default()
        .into_iter()
        .take(SWEEP_TASKS_MAX)
    {
        if found.len() < max && tid > 0 && is_real_time_now(fs, tid) {
            let comm = fs
                .read(Path::new(&format!("/proc/{tid}/comm")))
                .unwrap_or_default();
            found.insert(tid, comm.trim().to_owned());
        }
    }
    found
}
