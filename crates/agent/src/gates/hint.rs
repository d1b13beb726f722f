//! What is known of a gate's latency hint.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::sched::hint::{HintCensus, Latency};
use tidegate_cgroup::sched::tasks::TaskId;

#[derive(Clone, Debug)]
pub(crate) struct HintState {
    pub latency: Arc<Latency>,
    pub group: GroupPath,
    pub at_boot_ns: u64,
    pub base_ns: u64,
    /// When the last whole poll ended, and how long the one before it was ago.
    pub round_ns: Option<u64>,
    pub every_ns: u64,
    pub counts: HintCounts,
    pub round: HintRound,
    /// Tasks that the sweep gave it, with how often: another writer may be taking it from them.
    pub given: BTreeMap<i32, (TaskId, u8)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HintCounts {
    pub with: u64,
    pub others: u64,
    pub real_time: u64,
    pub idle: u64,
    pub refused: u64,
    pub reset: u64,
}

impl HintCounts {
    pub fn of(seen: &HintCensus) -> Self {
        Self {
            with: seen.ours.len() as u64,
            others: seen.others.len() as u64,
            real_time: seen.real_time,
            idle: seen.idle,
            ..Self::default()
        }
    }

    pub fn merge(&mut self, other: &Self) {
        self.with += other.with;
        self.others += other.others;
        self.real_time += other.real_time;
        self.idle += other.idle;
        self.refused += other.refused;
        self.reset += other.reset;
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct HintRound {
    pub counts: HintCounts,
    pub at_tid: i32,
    pub seen: Vec<i32>,
}
