//! One gate's group in every hierarchy that is used: making, filling, reading, limiting and
//! removing it.
//!
//! v1 and v2 differ in file names, units, order of writes and in where a group has to be made; that
//! is behind the small [`Files`] trait. Everything here does what it is told, once; what to write
//! and when is the plan's business, and what stood before is the ledger's.

mod cpuset;
mod error;
mod memory;
mod placement;
mod restrictions;
mod single;
mod tree;
mod v1;
mod v2;
mod weight;

use std::path::PathBuf;
use std::sync::Arc;

pub use cpuset::GatherReport;
pub use error::GroupError;
pub use placement::{Origin, Placement, PlacementUndo};
pub use restrictions::restriction;
pub use weight::{
    IDLE_SHARES, SHARES_DEFAULT, WEIGHT_DEFAULT, WEIGHT_MAX, WEIGHT_MIN, shares_from_weight,
    weight_from_shares,
};

pub use crate::group_path::{GroupPath, GroupPathError};

use tree::{Tree, numbers};

use crate::bandwidth::Bandwidth;
use crate::discover::{CgroupVersion, Hierarchy, Machine};
use crate::{FileStat, KernelFs};

/// Groups nested deeper than this are not ours to remove.
const DEPTH_MAX: u32 = 16;

pub type GroupResult<T> = Result<T, GroupError>;

/// What the kernel counts for a group with a limit, in the kernel's own names; times in ns on v1
/// and v2 alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CpuStat {
    pub nr_periods: u64,
    pub nr_throttled: u64,
    pub throttled_ns: u64,
    pub nr_bursts: u64,
    pub burst_ns: u64,
}

impl CpuStat {
    pub fn plus(self, other: Self) -> Self {
        Self {
            nr_periods: self.nr_periods + other.nr_periods,
            nr_throttled: self.nr_throttled + other.nr_throttled,
            throttled_ns: self.throttled_ns + other.throttled_ns,
            nr_bursts: self.nr_bursts + other.nr_bursts,
            burst_ns: self.burst_ns + other.burst_ns,
        }
    }

    pub fn since(self, earlier: Self) -> Self {
        Self {
            nr_periods: self.nr_periods.saturating_sub(earlier.nr_periods),
            nr_throttled: self.nr_throttled.saturating_sub(earlier.nr_throttled),
            throttled_ns: self.throttled_ns.saturating_sub(earlier.throttled_ns),
            nr_bursts: self.nr_bursts.saturating_sub(earlier.nr_bursts),
            burst_ns: self.burst_ns.saturating_sub(earlier.burst_ns),
        }
    }
}

/// A group's standing against its siblings, as the kernel's files hold it (so that a restore is
/// exact).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CpuClass {
    /// `cpu.idle`; `None` where the kernel has no such file.
    pub idle: Option<bool>,
    /// v1: `cpu.shares`; v2: `cpu.weight`.
    pub weight_raw: u64,
}

impl std::fmt::Display for CpuClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.idle == Some(true) {
            return f.write_str("idle");
        }
        write!(f, "weight {}", self.weight_raw)
    }
}

/// What differs between v1 and v2 about the files of one group.
trait Files: Send + Sync {
    fn usage_ns(&self, tree: &Tree, group: &GroupPath) -> GroupResult<Option<u64>>;
    fn cpu_stat(&self, tree: &Tree, group: &GroupPath) -> GroupResult<CpuStat>;
    fn bandwidth(&self, tree: &Tree, group: &GroupPath) -> GroupResult<Bandwidth>;
    fn set_bandwidth(
        &self,
        tree: &Tree,
        group: &GroupPath,
        from: Bandwidth,
        to: Bandwidth,
    ) -> GroupResult<u32>;
    fn burst_file(&self) -> &'static str;
    fn weight_file(&self) -> &'static str;
    fn weight_raw(&self, weight: u32) -> u64;
    fn weight_of_raw(&self, raw: u64) -> u32;
    fn populated(&self, tree: &Tree, group: &GroupPath) -> GroupResult<bool>;
    fn is_frozen(&self, tree: &Tree, group: &GroupPath) -> GroupResult<bool>;
    /// Lets children of `parent` have cpu files.
    fn enable_cpu_below(&self, tree: &Tree, parent: &GroupPath) -> GroupResult<()>;
}

pub struct Groups {
    tree: Tree,
    files: Box<dyn Files>,
}

impl Groups {
    pub fn new(fs: Arc<dyn KernelFs>, machine: &Machine) -> Self {
        let tree = Tree {
            fs,
            version: machine.version,
            cpu: machine.cpu.clone(),
            cpuacct: machine.cpuacct.clone(),
            cpuset: machine.cpuset_mount.clone(),
            has_idle: machine.features.idle.present,
            has_burst: machine.features.burst.present,
        };
        let files: Box<dyn Files> = match machine.version {
            CgroupVersion::V1 => Box::new(v1::V1),
            CgroupVersion::V2 => Box::new(v2::V2),
        };
        Self { tree, files }
    }

    pub fn version(&self) -> CgroupVersion {
        self.tree.version
    }

    pub fn base(&self) -> &GroupPath {
        &self.tree.cpu.base
    }

    pub fn fs(&self) -> &Arc<dyn KernelFs> {
        &self.tree.fs
    }

    pub fn dir(&self, group: &GroupPath) -> PathBuf {
        self.tree.cpu.dir(group)
    }

    pub fn exists(&self, group: &GroupPath) -> bool {
        self.tree.fs.exists(&self.dir(group))
    }

    /// The group's identity and owner; its `ino` is the id that BPF programs see.
    pub fn stat(&self, group: &GroupPath) -> GroupResult<FileStat> {
        self.tree
            .fs
            .stat(&self.dir(group))
            .map_err(GroupError::kfs(group))
    }

    pub fn id(&self, group: &GroupPath) -> GroupResult<u64> {
        Ok(self.stat(group)?.ino)
    }

    pub fn children(&self, group: &GroupPath) -> GroupResult<Vec<GroupPath>> {
        self.tree.children_in(&self.tree.cpu, group)
    }

    /// Makes the group (and those between it and the base) in every hierarchy; what is there
    /// already is kept. On v2 the cpu controller is enabled on the way down. True when the group
    /// itself was made in the cpu hierarchy.
    pub fn create(&self, group: &GroupPath) -> GroupResult<bool> {
        let mut way = Vec::new();
        let mut at = Some(group.clone());
        while let Some(here) = at.filter(|here| !here.is_root() && here != self.base()) {
            at = here.parent();
            way.push(here);
        }
        let mut made = false;
        for step in way.iter().rev() {
            made = self.create_one(step)?;
        }
        Ok(made)
    }

    fn create_one(&self, group: &GroupPath) -> GroupResult<bool> {
        if let Some(parent) = group.parent() {
            self.files.enable_cpu_below(&self.tree, &parent)?;
        }
        let mut made_in: Vec<PathBuf> = Vec::new();
        let mut made_in_cpu = false;
        for (nth, (hierarchy, here)) in self.tree.places(group).enumerate() {
            match self.tree.fs.mkdir(&hierarchy.dir(&here)) {
                Ok(()) => {
                    made_in.push(hierarchy.dir(&here));
                    made_in_cpu |= nth == 0;
                }
                Err(error) if error.errno == libc::EEXIST => {}
                Err(error) => {
                    // A gate with a group in one hierarchy only would be half a gate: take back
                    // what was made here.
                    for dir in made_in.iter().rev() {
                        if let Err(error) = self.tree.fs.rmdir(dir) {
                            tracing::warn!(%error, "a group that was made in part stays");
                        }
                    }
                    return Err(GroupError::kfs(group)(error));
                }
            }
        }
        Ok(made_in_cpu)
    }

    /// Removes the group and the empty groups in it, leaf first, in every hierarchy. What is gone
    /// is fine (false).
    pub fn remove(&self, group: &GroupPath) -> GroupResult<bool> {
        if group.is_root() || group == self.base() {
            return Err(GroupError::NotPossible {
                group: group.clone(),
                why: "it is the tree's own group, not one of ours".to_owned(),
                remedy: "name a gate's group".to_owned(),
            });
        }
        if self.version() == CgroupVersion::V1 {
            self.close_cpuset(group)?;
        }
        let mut removed = false;
        // The cpu hierarchy last: after a death, the next agent looks there for what is left.
        let places: Vec<_> = self.tree.places(group).enumerate().collect();
        for (nth, (hierarchy, here)) in places.into_iter().rev() {
            let gone = self.remove_in(hierarchy, &here, DEPTH_MAX)?;
            removed |= gone && nth == 0;
        }
        Ok(removed)
    }

    fn remove_in(&self, hierarchy: &Hierarchy, group: &GroupPath, depth: u32) -> GroupResult<bool> {
        let children = match self.tree.children_in(hierarchy, group) {
            Err(error) if error.is_gone() => return Ok(false),
            children => children?,
        };
        if depth > 0 {
            for child in &children {
                self.remove_in(hierarchy, child, depth - 1)?;
            }
        }
        match self.tree.fs.rmdir(&hierarchy.dir(group)) {
            Ok(()) => Ok(true),
            Err(error) if error.is_gone() => Ok(false),
            Err(error) if error.errno == libc::EBUSY => Err(self.busy(hierarchy, group)),
            Err(source) => Err(GroupError::kfs(group)(source)),
        }
    }

    fn busy(&self, hierarchy: &Hierarchy, group: &GroupPath) -> GroupError {
        let procs = self
            .tree
            .fs
            .read(&hierarchy.file(group, "cgroup.procs"))
            .unwrap_or_default();
        let groups = self.tree.children_in(hierarchy, group).unwrap_or_default();
        GroupError::Busy {
            group: group.clone(),
            pids: numbers(&procs).collect(),
            groups: groups.iter().map(ToString::to_string).collect(),
        }
    }

    /// The processes in the group itself (not those in groups in it). On v2 a threaded group's are
    /// not readable there: its threads' processes are given instead.
    pub fn procs(&self, group: &GroupPath) -> GroupResult<Vec<i32>> {
        match self.tree.pids(group) {
            Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => {
                placement::threaded_procs(&self.tree, group)
            }
            pids => pids,
        }
    }

    /// The threads in the group itself (not those in groups in it).
    pub fn tids(&self, group: &GroupPath) -> GroupResult<Vec<i32>> {
        Ok(numbers(&self.tree.read(group, self.members_file(true))?).collect())
    }

    pub fn populated(&self, group: &GroupPath) -> GroupResult<bool> {
        self.files.populated(&self.tree, group)
    }

    /// Whether the group is frozen, by itself or by a group around it. v1 freezes in a hierarchy of
    /// its own, which is not read.
    pub fn is_frozen(&self, group: &GroupPath) -> GroupResult<bool> {
        self.files.is_frozen(&self.tree, group)
    }

    /// CPU time used by the group since it was made; `None` where the machine does not account it
    /// (v1 without cpuacct).
    pub fn usage_ns(&self, group: &GroupPath) -> GroupResult<Option<u64>> {
        self.files.usage_ns(&self.tree, group)
    }

    pub fn cpu_stat(&self, group: &GroupPath) -> GroupResult<CpuStat> {
        self.files.cpu_stat(&self.tree, group)
    }

    pub fn bandwidth(&self, group: &GroupPath) -> GroupResult<Bandwidth> {
        self.files.bandwidth(&self.tree, group)
    }

    /// Changes the limit from what stands (`from`; read when not given) to `to`, in an order in
    /// which no state between is invalid or looser than both. Returns how many writes that took:
    /// **each is a refill** of the group's pool and forgives its debt. 0 when nothing differs; 1
    /// when only the quota does (v2: or the period).
    pub fn set_bandwidth(
        &self,
        group: &GroupPath,
        from: Option<Bandwidth>,
        to: Bandwidth,
    ) -> GroupResult<u32> {
        let from = match from {
            Some(from) => from,
            None => self.bandwidth(group)?,
        };
        self.files.set_bandwidth(&self.tree, group, from, to)
    }

    /// The burst alone, of whatever quota stands. The kernel refuses one above the quota.
    pub fn set_burst(&self, group: &GroupPath, burst_us: u64) -> GroupResult<()> {
        self.tree
            .write(group, self.files.burst_file(), &burst_us.to_string())
    }

    pub fn class(&self, group: &GroupPath) -> GroupResult<CpuClass> {
        let weight_raw = self
            .tree
            .read_number(group, self.tree.cpu_file(group, self.files.weight_file()))?;
        Ok(CpuClass {
            idle: self.idle(group)?,
            weight_raw,
        })
    }

    /// `cpu.idle`; `None` where the kernel has no such file.
    pub fn idle(&self, group: &GroupPath) -> GroupResult<Option<bool>> {
        let value = self
            .tree
            .read_optional(group, "cpu.idle", self.tree.has_idle)?;
        Ok(value.map(|value| value != 0))
    }

    pub fn has_idle(&self) -> bool {
        self.tree.has_idle != Some(false)
    }

    /// Puts the group into the idle class or takes it out. Taking it out leaves the default weight
    /// (the kernel's doing).
    pub fn set_idle(&self, group: &GroupPath, idle: bool) -> GroupResult<()> {
        self.tree
            .write(group, "cpu.idle", if idle { "1" } else { "0" })
    }

    /// The group's weight on v2's scale (1 to 10000).
    pub fn weight(&self, group: &GroupPath) -> GroupResult<u32> {
        Ok(self.files.weight_of_raw(self.class(group)?.weight_raw))
    }

    /// Sets the group's weight on v2's scale; clamped to 1 to 10000. The kernel refuses it (EINVAL)
    /// while idle is set.
    pub fn set_weight(&self, group: &GroupPath, weight: u32) -> GroupResult<()> {
        let raw = self.files.weight_raw(weight.clamp(WEIGHT_MIN, WEIGHT_MAX));
        self.set_weight_raw(group, raw)
    }

    pub fn weight_raw(&self, weight: u32) -> u64 {
        self.files.weight_raw(weight.clamp(WEIGHT_MIN, WEIGHT_MAX))
    }

    pub fn set_weight_raw(&self, group: &GroupPath, raw: u64) -> GroupResult<()> {
        self.tree
            .write(group, self.files.weight_file(), &raw.to_string())
    }
}
