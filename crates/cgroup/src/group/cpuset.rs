//! The cpuset of a group: which CPUs its processes may run on.
//!
//! | | v1 | v2 |
//! |---|---|---|
//! | where | a group of the same name in the cpuset hierarchy, made for it | the group's own `cpuset.cpus` |
//! | who is in it | processes that are moved in; children inherit it; who leaves the group is moved out | what is in the group |
//! | others' cpusets | a process with a cpuset of its own stays there | the kernel intersects with the parent's |
//! | what a write costs | rebuilt scheduling domains, unless `cpuset.sched_load_balance` is 0 in the group | no domains |
//! | taken off | its processes go back to the parent, the group is removed | an empty list, or, with a process in it, all: the parent's CPUs |

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::tree::numbers;
use super::{GroupError, GroupPath, GroupResult, Groups};
use crate::KfsError;
use crate::clip;
use crate::cpus::{self, format_list, parse_list};
use crate::discover::{CgroupVersion, parse_proc_cgroup};

const CPUS: &str = "cpuset.cpus";
const DEPTH_MAX: u32 = 8;
/// Each costs a file to read, once a second.
const PROCESSES_MAX: usize = 256;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatherReport {
    pub moved: u32,
    /// Processes left out, since they have a cpuset of their own (v1).
    pub others: u32,
}

impl Groups {
    pub fn cpuset_refusal(&self) -> Option<String> {
        let Some(mount) = &self.tree.cpuset else {
            return Some("no mounted hierarchy has the cpuset controller".to_owned());
        };
        let base = self.cpuset_dir(self.base());
        (!self.tree.fs.exists(&base.join(CPUS)) && !self.base().is_root()).then(|| {
            format!(
                "{}: {} has no cpuset controller",
                mount.display(),
                self.base()
            )
        })
    }

    pub fn cpuset_dir(&self, group: &GroupPath) -> PathBuf {
        match (&self.tree.cpuset, self.tree.version) {
            (Some(mount), CgroupVersion::V1) if group.is_root() => mount.clone(),
            (Some(mount), CgroupVersion::V1) => mount.join(group.relative()),
            _ => self.dir(group),
        }
    }

    /// The CPUs that a group directly below `parent` may have, as others leave them, ascending.
    pub fn cpuset_allowed(&self, parent: &GroupPath) -> GroupResult<Vec<u32>> {
        let name = match self.tree.version {
            CgroupVersion::V1 => "cpuset.effective_cpus",
            CgroupVersion::V2 => "cpuset.cpus.effective",
        };
        self.cpu_list(parent, name)
    }

    /// The CPUs that the processes of the group may use by their cpusets, ascending; `None` where
    /// that cannot be told: without the controller, without processes (v1), with more of them than
    /// are worth a look.
    pub fn cpus_of_work(&self, group: &GroupPath) -> GroupResult<Option<Vec<u32>>> {
        if self.tree.cpuset.is_none() {
            return Ok(None);
        }
        if self.tree.version == CgroupVersion::V2 {
            let mut at = Some(group.clone());
            while let Some(here) = at {
                // The file is where the parent has the controller switched on; below that the
                // nearest above counts.
                let file = self.cpuset_dir(&here).join("cpuset.cpus.effective");
                if self.tree.fs.exists(&file) {
                    return self.cpuset_allowed(&here).map(Some);
                }
                at = here.parent();
            }
            return Ok(None);
        }
        let mut pids = Vec::new();
        self.processes_below(group, DEPTH_MAX, &mut pids)?;
        if pids.len() > PROCESSES_MAX {
            return Ok(None);
        }
        let places: BTreeSet<String> = pids
            .iter()
            .filter_map(|pid| self.cpuset_group_of(*pid))
            .collect();
        let mut cpus = BTreeSet::new();
        for place in places {
            let Ok(place) = GroupPath::parse(&place) else {
                return Ok(None);
            };
            cpus.extend(self.cpuset_allowed(&place)?);
        }
        Ok((!cpus.is_empty()).then(|| cpus.into_iter().collect()))
    }

    /// The CPUs that the group has, as they were last written; empty where nothing was.
    pub fn cpuset(&self, group: &GroupPath) -> GroupResult<Vec<u32>> {
        self.cpu_list(group, CPUS)
    }

    /// Whether the group has a cpuset (v1: a group there; v2: the file).
    pub fn has_cpuset(&self, group: &GroupPath) -> bool {
        self.tree.cpuset.is_some() && self.tree.fs.exists(&self.cpuset_dir(group).join(CPUS))
    }

    /// Makes a cpuset possible for the group; no process is confined yet. It may be repeated.
    pub fn open_cpuset(&self, group: &GroupPath) -> GroupResult<()> {
        let parent = group.parent().unwrap_or_else(GroupPath::root);
        if self.tree.version == CgroupVersion::V2 {
            if self.has_cpuset(group) {
                return Ok(());
            }
            return self
                .tree
                .write(&parent, "cgroup.subtree_control", "+cpuset");
        }
        self.tree.make_dir(group, &self.cpuset_dir(group))?;
        // A group without memory nodes or CPUs takes no process in.
        let mems = self.read_cpuset(&parent, "cpuset.effective_mems")?;
        self.write_cpuset_file(group, "cpuset.mems", mems.trim())?;
        // The parent balances over all CPUs; a second balancer over ours would rebuild the
        // machine's domains at each write.
        self.write_cpuset_file(group, "cpuset.sched_load_balance", "0")?;
        if self.cpuset(group)?.is_empty() {
            let all = self.cpuset_allowed(&parent)?;
            self.write_cpuset_file(group, CPUS, &format_list(&all))?;
        }
        Ok(())
    }

    pub fn set_cpuset(&self, group: &GroupPath, cpus: &[u32]) -> GroupResult<()> {
        if cpus.is_empty() {
            return Err(GroupError::NotPossible {
                group: group.clone(),
                why: "a cpuset without CPUs".to_owned(),
                remedy: "this is a fault in tidegate, please report it".to_owned(),
            });
        }
        self.write_cpuset_file(group, CPUS, &format_list(cpus))
    }

    /// v1: brings the processes of the group and the groups below it into its cpuset, but for those
    /// that another program put into another, and those that have left the group back to the
    /// parent's: nothing else ties the two hierarchies together. v2: nothing to do.
    pub fn gather_cpuset(&self, group: &GroupPath) -> GroupResult<GatherReport> {
        let mut gathered = GatherReport::default();
        if self.tree.version == CgroupVersion::V2 {
            return Ok(gathered);
        }
        let inside: BTreeSet<i32> = self.cpuset_members(group)?.into_iter().collect();
        let parent = group.parent().unwrap_or_else(GroupPath::root);
        let mut wanted = Vec::new();
        self.processes_below(group, DEPTH_MAX, &mut wanted)?;
        let below: BTreeSet<i32> = wanted.iter().copied().collect();
        for pid in inside.difference(&below) {
            self.let_out(group, &parent, *pid)?;
        }
        for pid in wanted.into_iter().filter(|pid| !inside.contains(pid)) {
            if self.cpuset_group_of(pid).as_deref() != Some(parent.as_str()) {
                gathered.others += 1;
                continue;
            }
            let is_moved = self.enter_cpuset(group, pid);
            gathered.moved += u32::from(is_moved.map_err(GroupError::kfs(group))?);
        }
        Ok(gathered)
    }

    /// Who is in the cpuset has left the group, unless it came only just now.
    fn let_out(&self, group: &GroupPath, parent: &GroupPath, pid: i32) -> GroupResult<()> {
        let has_left = match self.group_of(pid) {
            Ok(at) => !at.is_some_and(|at| at.is_within(group)),
            Err(error) if error.is_gone() => false,
            Err(error) => return Err(error),
        };
        if has_left {
            self.enter_cpuset(parent, pid)
                .map_err(GroupError::kfs(group))?;
        }
        Ok(())
    }

    pub fn close_cpuset(&self, group: &GroupPath) -> GroupResult<()> {
        if !self.has_cpuset(group) {
            return Ok(());
        }
        if self.tree.version == CgroupVersion::V2 {
            // A write of nothing does not reach the kernel.
            let taken_off = self.write_cpuset_file(group, CPUS, "\n");
            return match taken_off {
                // Nor is a group with processes to be without CPUs of its own, on v2 either
                // (validate_change): all that there can be are the parent's.
                Err(GroupError::Kfs { source, .. }) if source.errno == libc::ENOSPC => {
                    self.write_cpuset_file(group, CPUS, &format_list(&self.every_cpu()?))
                }
                done => done,
            };
        }
        let parent = group.parent().unwrap_or_else(GroupPath::root);
        // Who forks meanwhile leaves a child behind: look again.
        for _ in 0..DEPTH_MAX {
            let members = self.cpuset_members(group)?;
            for pid in &members {
                self.enter_cpuset(&parent, *pid)
                    .map_err(GroupError::kfs(group))?;
            }
            match self.tree.fs.rmdir(&self.cpuset_dir(group)) {
                Ok(()) => return Ok(()),
                Err(error) if error.is_gone() => return Ok(()),
                Err(error) if error.errno == libc::EBUSY => {}
                Err(error) => return Err(GroupError::kfs(group)(error)),
            }
        }
        Err(GroupError::Busy {
            group: group.clone(),
            pids: self.cpuset_members(group).unwrap_or_default(),
            groups: Vec::new(),
        })
    }

    fn every_cpu(&self) -> GroupResult<Vec<u32>> {
        let possible = cpus::possible(&*self.tree.fs);
        let all = possible.or_else(|_| cpus::online(&*self.tree.fs));
        all.map_err(|error| GroupError::NotPossible {
            group: GroupPath::root(),
            why: error.to_string(),
            remedy: "check that /sys is mounted".to_owned(),
        })
    }

    /// Whether these are all that the group could have: what taking its cpuset off leaves where a
    /// process is in it.
    pub fn is_every_cpu(&self, cpus: &[u32]) -> bool {
        self.every_cpu().is_ok_and(|all| all == cpus)
    }

    /// False: it has ended.
    fn enter_cpuset(&self, group: &GroupPath, pid: i32) -> Result<bool, KfsError> {
        let file = self.cpuset_dir(group).join("cgroup.procs");
        match self.tree.fs.write(&file, &pid.to_string()) {
            Err(error) if error.errno == libc::ESRCH => Ok(false),
            done => done.map(|()| true),
        }
    }

    fn cpuset_members(&self, group: &GroupPath) -> GroupResult<Vec<i32>> {
        Ok(numbers(&self.read_cpuset(group, "cgroup.procs")?).collect())
    }

    fn cpuset_group_of(&self, pid: i32) -> Option<String> {
        let file = format!("/proc/{pid}/cgroup");
        let text = self.tree.fs.read(std::path::Path::new(&file)).ok()?;
        let lines = parse_proc_cgroup(&file, &text).ok()?;
        lines
            .into_iter()
            .find(|line| line.controllers.iter().any(|one| one == "cpuset"))
            .map(|line| line.path)
    }

    fn processes_below(
        &self,
        group: &GroupPath,
        depth: u32,
        found: &mut Vec<i32>,
    ) -> GroupResult<()> {
        found.extend(self.procs(group)?);
        if depth == 0 {
            return Ok(());
        }
        for child in self.children(group)? {
            match self.processes_below(&child, depth - 1, found) {
                Err(error) if error.is_gone() => {}
                result => result?,
            }
        }
        Ok(())
    }

    fn cpu_list(&self, group: &GroupPath, name: &str) -> GroupResult<Vec<u32>> {
        let text = self.read_cpuset(group, name)?;
        parse_list(&text).map_err(|_| GroupError::Garbage {
            group: group.clone(),
            path: self.cpuset_dir(group).join(name),
            text: clip(&text),
            why: "not a list of CPUs",
        })
    }

    fn read_cpuset(&self, group: &GroupPath, name: &str) -> GroupResult<String> {
        let path = self.cpuset_dir(group).join(name);
        self.tree.read_whole(group, &path)
    }

    fn write_cpuset_file(&self, group: &GroupPath, name: &str, value: &str) -> GroupResult<()> {
        let path = self.cpuset_dir(group).join(name);
        self.tree
            .fs
            .write(&path, value)
            .map_err(GroupError::kfs(group))
    }
}
