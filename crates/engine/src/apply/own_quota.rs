//! A group's own quota, which is lifted while it is in the way of a lower one above it (v1).

use std::collections::BTreeMap;

use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::group::GroupPath;

#[derive(Clone, Copy, Debug)]
pub(super) struct OwnQuota {
    pub own: Bandwidth,
    pub lifted: bool,
}

impl OwnQuota {
    pub fn standing(&self) -> Bandwidth {
        if self.lifted {
            lifted(self.own)
        } else {
            self.own
        }
    }
}

pub(super) type QuotaTree = BTreeMap<GroupPath, OwnQuota>;

/// The quota taken off, the rest as it is: one write there and one back.
pub(super) fn lifted(own: Bandwidth) -> Bandwidth {
    Bandwidth {
        quota_us: None,
        ..own
    }
}
