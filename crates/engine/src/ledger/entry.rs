//! One line of the ledger: which knob of which group was written, over what, and what becomes of it
//! when no agent is left.

use serde::{Deserialize, Serialize};

use crate::locks::boost::Boost;
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::group::{CpuClass, GroupPath, Placement};
use tidegate_cgroup::sched::hint::Latency;
use tidegate_cgroup::subgroups::Family;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "knob", rename_all = "snake_case")]
pub enum Change {
    /// The group itself was made by us: removed when it is empty.
    Group,
    /// `cpu.idle`. The weight is kept as well, because the kernel resets it when idle ends.
    Idle { was: CpuClass, ours: bool },
    /// `cpu.idle` (or the weight, where the kernel has no such file) goes to and fro several times
    /// a second, as a soft cap has it: what stood before and the background are both ours.
    Background {
        /// Idle and weight before, and whenever it is not in the background.
        was: CpuClass,
    },
    /// `cpu.shares` or `cpu.weight`, as the file's own number.
    Weight { was: u64, ours: u64 },
    /// The limit. One that moves has its newest values in a slot of the moving file.
    Bandwidth {
        was: Bandwidth,
        ours: Bandwidth,
        /// What stood when that was noted, for one without a slot: its writer may have died before
        /// the write or between v1's three. Also what it may go back to while a parent on v1 is
        /// tighter.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        previous: Option<Bandwidth>,
    },
    /// The burst of a limit that another program gave the group.
    Burst {
        was_us: u64,
        /// What stood when `ours_us` was noted: the writer may have died before it wrote that.
        previous_us: u64,
        ours_us: u64,
    },
    /// The CPUs of the group (v1: of the group of the same name in the cpuset hierarchy, made for
    /// it). An empty list is none of its own.
    Cpuset {
        was: Vec<u32>,
        /// What we wrote before the last; its writer may have died before it wrote that.
        previous: Vec<u32>,
        ours: Vec<u32>,
    },
    Membership {
        /// Its start time, so that a later process with its number is left alone.
        start_ticks: u64,
        placement: Placement,
    },
    /// Processes or tasks of the group get groups of their own, as they come: moved back, and the
    /// groups removed.
    Subgroups(Family),
    /// A latency hint on tasks. Where they are one process's, the group is the root and its
    /// identity of no account.
    Latency(Latency),
    /// A holder of a lock that main waits for goes first. The group is the root and its identity of
    /// no account.
    Boost(Boost),
}

impl Change {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::Idle { .. } => "idle",
            Self::Background { .. } => "background",
            Self::Weight { .. } => "weight",
            Self::Bandwidth { .. } => "bandwidth",
            Self::Burst { .. } => "burst",
            Self::Cpuset { .. } => "cpuset",
            Self::Membership { .. } => "membership",
            Self::Subgroups(_) => "groups for one each",
            Self::Latency(_) => "latency hint",
            Self::Boost(_) => "turn of a lock's holder",
        }
    }

    pub fn is_group(&self) -> bool {
        matches!(self, Self::Group)
    }

    pub fn is_bandwidth(&self) -> bool {
        matches!(self, Self::Bandwidth { .. })
    }

    pub fn is_burst(&self) -> bool {
        matches!(self, Self::Burst { .. })
    }

    /// Whether it puts a group into the idle class, or gives it the least weight where there is
    /// none.
    pub fn is_idle_class(&self) -> bool {
        matches!(self, Self::Idle { .. } | Self::Weight { .. })
    }

    /// Whether it is a soft cap's, into the background and out of it.
    pub fn is_background(&self) -> bool {
        matches!(self, Self::Background { .. })
    }

    pub fn is_boost(&self) -> bool {
        matches!(self, Self::Boost(_))
    }
}

/// What the guardian does with a knob when the agent is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    Floor {
        bandwidth: Bandwidth,
    },
    Restore,
    /// Leave what stands for so long, then put back what stood before us.
    Hold {
        seconds: u32,
    },
    /// Leave it as it is (cpu.idle of a command's group: an orphan never becomes main's equal).
    Stay,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEntry {
    pub gate: String,
    pub group: GroupPath,
    /// Its inode, so that a later group of the same name is left alone. Of no account for a
    /// membership.
    pub group_id: u64,
    pub change: Change,
    pub fallback: Fallback,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Unique within the ledger's life, from 1.
    pub id: u64,
    pub gate: String,
    pub group: GroupPath,
    pub group_id: u64,
    pub change: Change,
    pub fallback: Fallback,
    pub at_boot_ns: u64,
}
