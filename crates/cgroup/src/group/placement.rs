//! Moving a process into a group and back: all its threads, in every hierarchy, or not at all.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::tree::numbers;
use super::{Files, GroupError, GroupPath, GroupResult, Groups, Tree, v2};
use crate::KfsError;
use crate::discover::{CgroupVersion, DiscoverError, Hierarchy, group_in};
use crate::target::{is_real_time, process_of, threads_of};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    pub mount: std::path::PathBuf,
    /// The group, below it; `None` when it could not be named (another cgroup namespace): no way
    /// back then.
    pub group: Option<GroupPath>,
}

/// What a move did, as far as undoing it needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    pub pid: i32,
    pub group: GroupPath,
    /// Where it was, in each hierarchy, cpu first.
    pub from: Vec<Origin>,
    pub made_group: bool,
    /// v2: cpu was enabled in this group's cgroup.subtree_control for it.
    pub enabled_cpu_in: Option<GroupPath>,
    /// `pid` is one thread, which is moved without the others of its process.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_of_thread: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlacementUndo {
    AtHome,
    Moved,
    Elsewhere,
    Exited,
}

impl Groups {
    /// Moves a process with all its threads into an existing group, in every hierarchy. When one
    /// refuses, those already done are taken back: the process is never half moved, unless even the
    /// way back fails ([`GroupError::HalfMoved`]).
    pub fn place(&self, group: &GroupPath, pid: i32) -> GroupResult<Placement> {
        Ok(Placement {
            pid,
            group: group.clone(),
            from: self.enter_all(group, pid, false)?,
            made_group: false,
            enabled_cpu_in: None,
            is_of_thread: false,
        })
    }

    /// Says where it was, in each hierarchy.
    pub(super) fn enter_all(
        &self,
        group: &GroupPath,
        pid: i32,
        is_of_thread: bool,
    ) -> GroupResult<Vec<Origin>> {
        check_pid(group, pid)?;
        let mut from = Vec::new();
        for (hierarchy, _) in self.tree.places(group) {
            let origin = group_in(&*self.tree.fs, hierarchy, self.tree.version, pid)?;
            from.push(Origin {
                mount: hierarchy.mount.clone(),
                group: origin,
            });
        }
        for (done, (hierarchy, here)) in self.tree.places(group).enumerate() {
            if let Err(source) = self.enter(hierarchy, &here, pid, is_of_thread) {
                let refusal = self.explain_refusal(group, pid, source);
                return Err(self.take_back(group, (pid, is_of_thread), &from[..done], refusal));
            }
        }
        Ok(from)
    }

    /// What placing a process in place is going to do, for the ledger; nothing is touched. Undoing
    /// the plan ([`Groups::place_back`]) is right after any part of it was done: the group made
    /// ([`Groups::make_planned`]), the process placed in it.
    pub fn plan_in_place(
        &self,
        pid: i32,
        name: &str,
        v1_group: &GroupPath,
    ) -> GroupResult<Placement> {
        self.plan(pid, name, v1_group, false)
    }

    /// The same of one thread, which leaves the others of its process where they are.
    pub fn plan_thread_in_place(
        &self,
        tid: i32,
        name: &str,
        v1_group: &GroupPath,
    ) -> GroupResult<Placement> {
        self.plan(tid, name, v1_group, true)
    }

    fn plan(
        &self,
        pid: i32,
        name: &str,
        v1_group: &GroupPath,
        is_of_thread: bool,
    ) -> GroupResult<Placement> {
        // Without a name for where it is, there would be no way back.
        let nameless = || GroupError::NotPossible {
            group: GroupPath::root(),
            why: format!(
                "process {pid} is in a group that cannot be named here (another cgroup namespace, or a name with a \
                 control character or without UTF-8)"
            ),
            remedy:
                "run tidegate on the host or its agent with --host-cgroups, or rename the group"
                    .to_owned(),
        };
        let own = self.group_of(pid)?.ok_or_else(nameless)?;
        if !is_of_thread {
            self.check_together(pid, &own)?;
        }
        let (group, parent) = match self.tree.version {
            CgroupVersion::V1 => (v1_group.clone(), None),
            CgroupVersion::V2 => (own.join(name)?, Some(own)),
        };
        let mut from = Vec::new();
        for (hierarchy, _) in self.tree.places(&group) {
            let origin = group_in(&*self.tree.fs, hierarchy, self.tree.version, pid)?;
            from.push(Origin {
                mount: hierarchy.mount.clone(),
                group: Some(origin.ok_or_else(nameless)?),
            });
        }
        let enabled_cpu_in = match parent {
            Some(parent) if !v2::hands_down(&self.tree, &parent, "cpu")? => Some(parent),
            _ => None,
        };
        // Only what is known to have been there is kept when the process goes back.
        let made_group = match self.stat(&group) {
            Ok(_) => false,
            Err(error) if error.is_gone() => true,
            Err(error) => return Err(error),
        };
        Ok(Placement {
            pid,
            made_group,
            group,
            from,
            enabled_cpu_in,
            is_of_thread,
        })
    }

    /// A process is moved with all its threads, and goes back to one group: it is refused if its
    /// threads are in several, as those of a virtual machine's CPUs are.
    fn check_together(&self, pid: i32, own: &GroupPath) -> GroupResult<()> {
        for tid in threads_of(&*self.tree.fs, pid) {
            // One that has exited is in none.
            if let Ok(Some(other)) = self.group_of(tid)
                && other != *own
            {
                return Err(GroupError::NotPossible {
                    group: own.clone(),
                    why: format!(
                        "threads of process {pid} are in several groups, {own} and {other} among them, and would lose \
                         those"
                    ),
                    remedy: match own.is_root() {
                        true => format!("put its threads back first: tidegate unset tid:{tid}"),
                        false => format!("name the group that has them, as in cgroup:{own}"),
                    },
                });
            }
        }
        Ok(())
    }

    /// Makes the group of a plan, for the process to be placed in: for one that must stay below its
    /// own group (v2: memory accounting, KillMode) a child group there, threaded, or plain where
    /// the process is in the root group. On v1 the cpu hierarchies carry nothing else, so it may be
    /// anywhere.
    pub fn make_planned(&self, plan: &Placement) -> GroupResult<()> {
        match plan.group.parent() {
            Some(own) if self.tree.version == CgroupVersion::V2 => {
                self.make_below(&own, &plan.group)?;
                match plan.is_of_thread {
                    true => self.make_threaded(&own, &plan.group),
                    false => Ok(()),
                }
            }
            _ => self.create(&plan.group).map(|_| ()),
        }
    }

    /// v2: makes `group` below `own`, which has processes of its own, for some of these to be
    /// limited in it: threaded, so that they stay in `own`, or plain where that is the root group.
    pub fn make_below(&self, own: &GroupPath, group: &GroupPath) -> GroupResult<()> {
        self.tree.make_dir(group, &self.dir(group))?;
        // Only the real root has no type, and takes any child beside its processes; a namespace's
        // root does not.
        if self.tree.fs.exists(&self.tree.cpu_file(own, "cgroup.type")) {
            self.make_threaded(own, group)?;
        }
        v2::V2.enable_cpu_below(&self.tree, own)
    }

    /// v2: removes what [`Groups::make_below`] made. Where that was the last group below `own`, the
    /// cpu controller that it hands down serves none; without it, `own` is an ordinary group again.
    pub fn remove_below(&self, own: &GroupPath, group: &GroupPath) -> GroupResult<()> {
        let kind = self.tree.read(own, "cgroup.type").unwrap_or_default();
        self.remove(group)?;
        match kind.trim() == "domain threaded" {
            true => self.disable_cpu_below(own),
            false => Ok(()),
        }
    }

    /// Where a process is, below the mount of the cpu controller.
    pub fn group_of(&self, pid: i32) -> GroupResult<Option<GroupPath>> {
        Ok(group_in(
            &*self.tree.fs,
            &self.tree.cpu,
            self.tree.version,
            pid,
        )?)
    }

    /// Undoes a placement, or as much of a planned one as was done: in each hierarchy where the
    /// process is in our group it goes back to where it was, or to the nearest ancestor that is
    /// still there. Where another program has moved it since, it is left. What was made for it is
    /// removed. Idempotent.
    pub fn place_back(&self, placement: &Placement) -> GroupResult<PlacementUndo> {
        let mut returned = PlacementUndo::AtHome;
        for (hierarchy, ours) in self.tree.places(&placement.group) {
            let Some(origin) = placement
                .from
                .iter()
                .find(|one| one.mount == hierarchy.mount)
            else {
                continue;
            };
            let now = match group_in(&*self.tree.fs, hierarchy, self.tree.version, placement.pid) {
                Ok(now) => now,
                Err(DiscoverError::Kfs(error)) if error.is_gone() => {
                    returned = PlacementUndo::Exited;
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            if now.as_ref() == Some(&ours) {
                self.back_to(placement, origin)?;
                returned = returned.max(PlacementUndo::Moved);
            } else if now != origin.group {
                returned = PlacementUndo::Elsewhere;
            }
        }
        if placement.made_group {
            self.remove(&placement.group)?;
        }
        if let Some(parent) = &placement.enabled_cpu_in {
            self.disable_cpu_below(parent)?;
        }
        Ok(returned)
    }

    fn back_to(&self, placement: &Placement, origin: &Origin) -> GroupResult<()> {
        let Some(hierarchy) = self.hierarchy_at(&origin.mount) else {
            return Ok(());
        };
        let mut at = Some(
            origin
                .group
                .clone()
                .unwrap_or_else(|| hierarchy.base.clone()),
        );
        while let Some(group) = at {
            match self.enter(hierarchy, &group, placement.pid, placement.is_of_thread) {
                Ok(()) => return Ok(()),
                Err(error) if error.errno == libc::ESRCH => return Ok(()),
                Err(error) if error.is_gone() && !self.tree.fs.exists(&hierarchy.dir(&group)) => {
                    at = group.parent();
                }
                Err(source) => return Err(GroupError::Kfs { group, source }),
            }
        }
        Ok(())
    }

    fn hierarchy_at(&self, mount: &Path) -> Option<&Hierarchy> {
        std::iter::once(&self.tree.cpu)
            .chain(self.tree.cpuacct.as_ref())
            .find(|one| one.mount == mount)
    }

    fn enter(
        &self,
        hierarchy: &Hierarchy,
        group: &GroupPath,
        pid: i32,
        is_of_thread: bool,
    ) -> Result<(), KfsError> {
        let file = hierarchy.file(group, self.members_file(is_of_thread));
        self.tree.fs.write(&file, &pid.to_string())
    }

    pub(super) fn members_file(&self, is_of_thread: bool) -> &'static str {
        match (is_of_thread, self.tree.version) {
            (false, _) => "cgroup.procs",
            (true, CgroupVersion::V1) => "tasks",
            (true, CgroupVersion::V2) => "cgroup.threads",
        }
    }

    fn explain_refusal(&self, group: &GroupPath, pid: i32, source: KfsError) -> GroupError {
        if source.errno == libc::EINVAL && self.tree.version == CgroupVersion::V1 {
            let tids = real_time_threads(&self.tree, pid);
            if !tids.is_empty() {
                return GroupError::RealTime {
                    pid,
                    tids,
                    group: group.clone(),
                };
            }
        }
        GroupError::kfs(group)(source)
    }

    fn take_back(
        &self,
        group: &GroupPath,
        (pid, is_of_thread): (i32, bool),
        done: &[Origin],
        refusal: GroupError,
    ) -> GroupError {
        for origin in done.iter().rev() {
            let Some(hierarchy) = self.hierarchy_at(&origin.mount) else {
                continue;
            };
            let home = origin
                .group
                .clone()
                .unwrap_or_else(|| hierarchy.base.clone());
            match self.enter(hierarchy, &home, pid, is_of_thread) {
                Ok(()) => {}
                Err(back) if back.errno == libc::ESRCH => {}
                Err(back) => {
                    let file = hierarchy.file(&home, self.members_file(is_of_thread));
                    let (why, back) = (Box::new(refusal), Box::new(back));
                    return GroupError::HalfMoved {
                        pid,
                        group: group.clone(),
                        why,
                        back,
                        file,
                    };
                }
            }
        }
        refusal
    }

    /// A threaded child shares its parent's memory and io accounting and still has a cpu controller
    /// of its own.
    pub(super) fn make_threaded(&self, own: &GroupPath, group: &GroupPath) -> GroupResult<()> {
        if self.tree.read(group, "cgroup.type")?.trim() == "threaded" {
            return Ok(());
        }
        match self.tree.write(group, "cgroup.type", "threaded") {
            Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => Err(GroupError::NotPossible {
                group: own.clone(),
                why: "it hands down memory or io, or has groups with processes in it, so it cannot have a threaded child"
                    .to_owned(),
                remedy: format!("limit the whole group instead: cgroup:{own}"),
            }),
            result => result,
        }
    }

    /// Only when no group is left below: turning the controller off would wipe the limits that
    /// others set there since.
    fn disable_cpu_below(&self, parent: &GroupPath) -> GroupResult<()> {
        match self.children(parent) {
            Ok(children) if children.is_empty() => {}
            Err(error) if !error.is_gone() => return Err(error),
            _ => return Ok(()),
        }
        match self.tree.write(parent, "cgroup.subtree_control", "-cpu") {
            // EBUSY: a group made just now uses it; then it must stay.
            Err(error) if error.is_gone() || error.errno() == Some(libc::EBUSY) => Ok(()),
            result => result,
        }
    }
}

fn check_pid(group: &GroupPath, pid: i32) -> GroupResult<()> {
    // "0" written to cgroup.procs means the writer itself, which would move the agent.
    if pid > 0 {
        return Ok(());
    }
    Err(GroupError::NotPossible {
        group: group.clone(),
        why: format!("{pid} is no process id"),
        remedy: "give a positive one".to_owned(),
    })
}

fn real_time_threads(tree: &Tree, pid: i32) -> Vec<i32> {
    let mut tids = threads_of(&*tree.fs, pid);
    tids.retain(|tid| {
        let stat = tree
            .fs
            .read(Path::new(&format!("/proc/{pid}/task/{tid}/stat")));
        stat.is_ok_and(|stat| is_real_time(&stat))
    });
    tids
}

/// A threaded group shows threads only; their processes are what the caller wants.
pub(super) fn threaded_procs(tree: &Tree, group: &GroupPath) -> GroupResult<Vec<i32>> {
    let text = tree.read(group, "cgroup.threads")?;
    let mut pids: Vec<i32> = numbers(&text)
        .filter_map(|tid| process_of(&*tree.fs, tid))
        .collect();
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}
