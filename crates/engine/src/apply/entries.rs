//! What the journal knows of groups and gates, by its entries.

use super::journal::Journal;
use crate::ledger::{self, Change, Entry};
use tidegate_cgroup::group::{CpuClass, GroupPath, Placement, WEIGHT_DEFAULT};
use tidegate_cgroup::sched::HintSetting;
use tidegate_cgroup::sched::tasks::Whose;
use tidegate_cgroup::subgroups::Family;

/// One gate's latency hint, as far as others are to know of it.
#[derive(Clone, Debug)]
pub struct HintPlace {
    pub gate: String,
    pub group: GroupPath,
    pub whose: Whose,
    pub ours: HintSetting,
}

impl Journal {
    pub fn knows(&self, group: &GroupPath) -> bool {
        self.ledger.of_group(group).next().is_some()
    }

    /// Whether the group was made by us.
    pub fn has_made(&self, group: &GroupPath) -> bool {
        self.entry(group, Change::is_group).is_some() || self.is_subgroup(group)
    }

    pub fn limits(&self, group: &GroupPath) -> bool {
        self.entry(group, Change::is_bandwidth).is_some()
    }

    /// The rate that `group` was limited to before us; `u64::MAX` for not at all.
    pub fn limit_before(&self, group: &GroupPath) -> u64 {
        let was = self
            .entry(group, Change::is_bandwidth)
            .map(|entry| &entry.change);
        match was {
            Some(Change::Bandwidth { was, .. }) => was.rate_ucpu().unwrap_or(u64::MAX),
            _ => u64::MAX,
        }
    }

    /// Whether a process that ran before was moved into `group`.
    pub fn is_moved(&self, group: &GroupPath) -> bool {
        self.entry(group, |change| matches!(change, Change::Membership { .. }))
            .is_some()
    }

    /// Of the entries with these numbers, those whose knob holds what we did not write, with what
    /// was found.
    pub fn outside_writes(&self, which: impl Iterator<Item = usize>) -> Vec<(Entry, String)> {
        let differs = |entry: &Entry| {
            if entry.change.is_bandwidth()
                && let Some(ours) = self.own_standing(&entry.group)
            {
                let found = self.groups.bandwidth(&entry.group).ok()?;
                return (found != ours).then(|| (entry.clone(), found.to_string()));
            }
            let found =
                ledger::standing_differs(&self.groups, self.ledger.moving(), entry).ok()??;
            Some((entry.clone(), found))
        };
        // Moved on into a group of its own, by us.
        let divided = |entry: &&Entry| {
            matches!(entry.change, Change::Membership { .. })
                && self.family_of(&entry.group).is_some()
        };
        let all: Vec<&Entry> = self.ledger.entries().collect();
        which
            .filter_map(|number| all.get(number).copied())
            .filter(|entry| !divided(entry))
            .filter_map(differs)
            .collect()
    }

    /// Groups that [`Journal::record_idle_class_change`] took out of the idle class.
    pub fn relieved(&self) -> Vec<GroupPath> {
        let relieved = self.entries().filter(|entry| self.relieves(&entry.change));
        relieved.map(|entry| entry.group.clone()).collect()
    }

    pub fn is_relieved(&self, group: &GroupPath) -> bool {
        self.entry(group, |change| self.relieves(change)).is_some()
    }

    fn relieves(&self, change: &Change) -> bool {
        match *change {
            Change::Idle { ours, .. } => !ours,
            Change::Weight { ours, .. } => ours == self.groups.weight_raw(WEIGHT_DEFAULT),
            _ => false,
        }
    }

    /// What a group with a soft cap is while it is not in the background.
    pub fn background_of(&self, group: &GroupPath) -> Option<CpuClass> {
        let own = |entry: &Entry| match &entry.change {
            Change::Background { was } if entry.group == *group => Some(*was),
            _ => None,
        };
        // A group for one each is ours, and was made with these.
        let one_of = |entry: &Entry| match &entry.change {
            Change::Subgroups(family) => family.id_of(group).map(|_| CpuClass {
                idle: self.groups.has_idle().then_some(false),
                weight_raw: self.groups.weight_raw(WEIGHT_DEFAULT),
            }),
            _ => None,
        };
        let around = group.parent();
        self.ledger.of_group(group).find_map(own).or_else(|| {
            let beside = around.iter().flat_map(|dir| self.ledger.of_group(dir));
            beside.into_iter().find_map(one_of)
        })
    }

    /// The groups for one each that a group was divided into.
    pub fn family_of(&self, group: &GroupPath) -> Option<Family> {
        match &self
            .entry(group, |change| matches!(change, Change::Subgroups(_)))?
            .change
        {
            Change::Subgroups(family) => Some(family.clone()),
            _ => None,
        }
    }

    /// The CPUs that `group` was last confined to, where it is.
    pub fn confined(&self, group: &GroupPath) -> Option<Vec<u32>> {
        match self.entry(group, |change| matches!(change, Change::Cpuset { .. })) {
            Some(Entry {
                change: Change::Cpuset { ours, .. },
                ..
            }) => Some(ours.clone()),
            _ => None,
        }
    }

    pub fn latency_of(&self, gate: &str) -> Option<Entry> {
        let is_hint = |entry: &&Entry| matches!(entry.change, Change::Latency(_));
        self.ledger.of_gate(gate).find(is_hint).cloned()
    }

    pub fn hints(&self) -> Vec<HintPlace> {
        let of = |entry: &Entry| match &entry.change {
            Change::Latency(latency) => Some(HintPlace {
                gate: entry.gate.clone(),
                group: entry.group.clone(),
                whose: latency.whose,
                ours: latency.ours,
            }),
            _ => None,
        };
        self.entries().filter_map(of).collect()
    }

    pub fn moves_of(&self, gate: &str) -> Vec<(Placement, u64)> {
        let moved = |entry: &Entry| match &entry.change {
            Change::Membership {
                start_ticks,
                placement,
            } => Some((placement.clone(), *start_ticks)),
            _ => None,
        };
        self.ledger.of_gate(gate).filter_map(moved).collect()
    }

    pub fn entries(&self) -> ledger::All<'_> {
        self.ledger.entries()
    }

    pub fn of_gate(&self, gate: &str) -> impl DoubleEndedIterator<Item = &Entry> {
        self.ledger.of_gate(gate)
    }

    pub(super) fn entry(&self, group: &GroupPath, is: impl Fn(&Change) -> bool) -> Option<&Entry> {
        self.ledger
            .of_group(group)
            .find(|entry| entry.group == *group && is(&entry.change))
    }

    pub(super) fn id_of(&self, group: &GroupPath, is: impl Fn(&Change) -> bool) -> Option<u64> {
        self.entry(group, is).map(|entry| entry.id)
    }
}
