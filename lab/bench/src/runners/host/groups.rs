//! The lab's own groups: made, written and removed here; what is in them is killed with them.

use std::path::PathBuf;
use std::sync::Arc;

use tidegate_cgroup::RealFs;
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::discover::{CgroupVersion, Machine, discover};
use tidegate_cgroup::group::{CpuStat, GroupError, Groups};
use tidegate_cgroup::group_path::GroupPath;

use crate::{LabError, clock};

/// Names of the lab's groups begin so, followed by the lab's process id.
pub(crate) const PREFIX: &str = "tglab-";

pub struct Tree {
    groups: Groups,
    machine: Machine,
}

fn failed(what: &'static str) -> impl Fn(GroupError) -> LabError {
    move |e| LabError::process(what, e.to_string())
}

impl Tree {
    /// Finds the tree, without asking whether groups can be made there.
    pub fn find() -> Result<Self, LabError> {
        let fs = Arc::new(RealFs::new());
        let machine = discover(&*fs, Some("/")).map_err(|e| needs(e.to_string()))?;
        Ok(Tree {
            groups: Groups::new(fs, &machine),
            machine,
        })
    }

    /// An error if groups cannot be made there.
    pub fn writable(&self) -> Result<(), LabError> {
        if let Some(why) = self.machine.refusal() {
            return Err(needs(why));
        }
        Group::create(self, "probe").map_err(|e| needs(e.to_string()))?;
        Ok(())
    }

    /// The version of cgroups that the cpu controller is on.
    pub fn version(&self) -> u8 {
        match self.machine.version {
            CgroupVersion::V1 => 1,
            CgroupVersion::V2 => 2,
        }
    }

    pub fn roots(&self) -> Vec<PathBuf> {
        self.machine.used().map(|h| h.mount.clone()).collect()
    }

    /// CPU time of everything on the machine but the idle threads, if the kernel accounts it apart
    /// from the ticks: on v1. (The root of v2 repeats the ticks of /proc/stat.)
    pub fn machine_ns(&self) -> Option<u64> {
        match self.machine.version {
            CgroupVersion::V1 => self.groups.usage_ns(&GroupPath::root()).ok().flatten(),
            CgroupVersion::V2 => None,
        }
    }

    pub fn group_of(&self, pid: i32) -> Option<GroupPath> {
        self.groups.group_of(pid).ok().flatten()
    }

    /// Its directory in the hierarchy of the cpu controller.
    pub fn dir(&self, group: &GroupPath) -> PathBuf {
        self.groups.dir(group)
    }

    pub fn usage_ns(&self, group: &GroupPath) -> u64 {
        self.groups.usage_ns(group).ok().flatten().unwrap_or(0)
    }

    /// What the limit of a group, or of the nearest limited one above it, has counted.
    pub fn counted(&self, group: &GroupPath) -> CpuStat {
        let limited = |g: &GroupPath| {
            let limit = self.groups.bandwidth(g);
            limit.is_ok_and(|b| b.quota_us.is_some())
        };
        let above = std::iter::successors(Some(group.clone()), GroupPath::parent);
        let found = above.filter(|g| !g.is_root()).find(limited);
        found
            .and_then(|g| self.groups.cpu_stat(&g).ok())
            .unwrap_or_default()
    }
}

fn needs(why: String) -> LabError {
    LabError::Needs {
        what: "making groups for the loads".into(),
        why,
        remedy: "run as root on a machine (or in a container) with a writable cgroup tree".into(),
    }
}

pub struct Group<'a> {
    tree: &'a Tree,
    /// Below the mount.
    pub path: GroupPath,
}

impl<'a> Group<'a> {
    /// Makes `tglab-<pid>-<name>` at the top of the hierarchy.
    pub fn create(tree: &'a Tree, name: &str) -> Result<Self, LabError> {
        let path = GroupPath::root().join(&format!("{PREFIX}{}-{name}", std::process::id()));
        let path = path.map_err(|e| LabError::process("making a group", e.to_string()))?;
        tree.groups
            .create(&path)
            .map_err(failed("making a group"))?;
        Ok(Group { tree, path })
    }

    pub fn membership(&self) -> Vec<PathBuf> {
        let used = self.tree.machine.used();
        used.map(|h| h.file(&self.path, "cgroup.procs")).collect()
    }

    /// Writes a weight; 0 leaves it.
    pub fn set_weight(&self, weight: u32) -> Result<(), LabError> {
        match weight {
            0 => Ok(()),
            _ => self.tree.groups.set_weight(&self.path, weight),
        }
        .map_err(failed("writing a group's weight"))
    }

    pub fn set_idle(&self) -> Result<(), LabError> {
        let set = self.tree.groups.set_idle(&self.path, true);
        set.map_err(failed("writing a group's idle class"))
    }

    pub fn set_max(&self, limit: Bandwidth) -> Result<(), LabError> {
        let set = self.tree.groups.set_bandwidth(&self.path, None, limit);
        set.map(|_| ()).map_err(failed("writing a group's limit"))
    }
}

impl Drop for Group<'_> {
    /// A killed process leaves its group a little later.
    fn drop(&mut self) {
        for _ in 0..200 {
            for pid in self.tree.groups.procs(&self.path).unwrap_or_default() {
                // SAFETY: the group is ours and holds only what the lab started.
                unsafe {
                    libc::kill(pid, libc::SIGKILL);
                }
            }
            if self.tree.groups.remove(&self.path).is_ok() {
                return;
            }
            clock::sleep_until(clock::monotonic_ns() + 10_000_000);
        }
        eprintln!(
            "tidegate-lab: removing a group: {}: still in use; remove it by hand",
            self.path
        );
    }
}
