//! Leaving out of the journal what is no more. Each time is one new file, whatever it leaves out.

use std::collections::BTreeSet;

use tidegate_knobs::group::GroupPath;

use super::{Journal, is_bandwidth};

impl Journal {
    /// Forgets all about a group and the groups in it.
    pub fn forget(&mut self, group: &GroupPath) {
        if let Err(error) = self.ledger.forget(|entry| entry.group.is_within(group)) {
            tracing::warn!("{error}");
        }
        self.forget_own();
    }

    /// The same of many groups at once.
    pub fn forget_all(&mut self, groups: &BTreeSet<GroupPath>) {
        if groups.is_empty() {
            return;
        }
        let is_within = |group: &GroupPath| {
            std::iter::successors(Some(group.clone()), GroupPath::parent)
                .any(|above| groups.contains(&above))
        };
        if let Err(error) = self.ledger.forget(|entry| is_within(&entry.group)) {
            tracing::warn!("{error}");
        }
        self.forget_own();
    }

    /// Own quotas that are in the journal no more.
    pub(crate) fn forget_own(&mut self) {
        if self.quota_tree.is_empty() {
            return;
        }
        let quotas = self.ledger.entries().iter();
        let limited: BTreeSet<&GroupPath> = quotas
            .filter(|entry| is_bandwidth(&entry.change))
            .map(|entry| &entry.group)
            .collect();
        self.quota_tree.retain(|group, _| limited.contains(group));
    }
}
