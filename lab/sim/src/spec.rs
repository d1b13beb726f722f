//! What the user describes: policies, groups, limits. Tasks are in [`crate::program`].

use serde::Deserialize;
pub use tidegate_cgroup::bandwidth::Bandwidth;

use crate::cpuset::CpuSet;
use crate::ids::GroupId;

/// A task's scheduling policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Normal,
    /// SCHED_BATCH: its wakeups do not preempt.
    Batch,
    /// SCHED_IDLE: weight 3, preempted by everyone else.
    Idle,
    /// SCHED_FIFO, above all fair tasks.
    Fifo {
        /// 1..=99, the highest runs first.
        prio: u8,
    },
}

/// A group's cap (seed 004), in thousandths of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapTerms {
    /// Never more than this, over any time but for the bucket's depth.
    pub hard_ppt: u32,
    /// Above this only with CPU that no other task wants; 0 is background.
    pub soft_ppt: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    Main,
    /// Work that uses what is left.
    Side,
    #[default]
    Neutral,
}

/// A group to add.
#[derive(Clone, Debug)]
pub struct GroupSpec {
    pub name: String,
    /// The group above; [`GroupId::ROOT`] at the top.
    pub parent: GroupId,
    /// cpu.weight, 1..=10000; 100 is the default.
    pub weight: u32,
    pub idle: bool,
    pub bandwidth: Option<Bandwidth>,
    pub cpus: Option<CpuSet>,
    pub class: Class,
    /// Latency hint of its tasks, for the engines that take it from a group.
    pub latency: i8,
    pub cap: Option<CapTerms>,
    /// Idle to keep for this main group.
    pub headroom_ppm: u32,
    /// What side work gets even when main takes all, where this main group names it.
    pub tolerance_ppm: Option<u32>,
    /// How long this main group may wait to run; then headroom is found on top of what is asked.
    pub objective: Option<DelayObjective>,
}

/// How long main may wait to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayObjective {
    /// A longer wait is a late one.
    pub late_after_ns: u64,
    /// The share of runs that may be late: 10,000 for p99.
    pub share_ppm: u32,
    /// Extra headroom to begin with.
    pub start_ppm: u32,
}

impl GroupSpec {
    /// A group with cgroup v2's defaults and no terms.
    pub fn new(name: &str, parent: GroupId) -> GroupSpec {
        GroupSpec {
            name: name.to_owned(),
            parent,
            weight: 100,
            idle: false,
            bandwidth: None,
            cpus: None,
            class: Class::Neutral,
            latency: 0,
            cap: None,
            headroom_ppm: 0,
            tolerance_ppm: None,
            objective: None,
        }
    }
}
