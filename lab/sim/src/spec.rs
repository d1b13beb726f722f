//! What the user describes: policies, groups, limits. Tasks are in [`crate::program`].

pub use tidegate_cgroup::bandwidth::Bandwidth;
pub use tidegate_cgroup::group::CpuStat;
pub use tidegate_terms::Class;

use crate::cpuset::CpuSet;
use crate::ids::GroupId;

/// A task's scheduling policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Normal,
    /// SCHED_IDLE: weight 3, preempted by everyone else.
    Idle,
}

#[derive(Clone, Debug)]
pub struct GroupSpec {
    pub name: String,
    /// The group above; [`GroupId::ROOT`] at the top.
    pub parent: GroupId,
    /// cpu.weight, 1..=10000; 100 is the default.
    pub weight: u32,
    pub idle: bool,
    pub bandwidth: Option<Bandwidth>,
    /// Each task that is spawned here gets a group of its own below, under this limit.
    pub task_limit: Option<Bandwidth>,
    pub cpus: Option<CpuSet>,
}

impl GroupSpec {
    /// A group with cgroup v2's defaults.
    pub fn new(name: &str, parent: GroupId) -> GroupSpec {
        GroupSpec {
            name: name.to_owned(),
            parent,
            weight: 100,
            idle: false,
            bandwidth: None,
            task_limit: None,
            cpus: None,
        }
    }
}
