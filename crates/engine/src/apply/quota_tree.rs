//! Quotas below quotas, which v1 makes an art: a group's quota may not be above its parent's, so
//! while a child stands above it, also the parent cannot be lowered (v2 takes any, and the least of
//! them holds).
//!
//! Main's protection must not wait for that. Lowering a quota here first lifts what stands above it
//! further down (a gate's own quota, or one that side work gave to a group that it made): a group
//! without a quota has its parent's, which is the lower one just then. When the parent's rises
//! again, the child gets its own back. So on v1, too, the least holds.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::journal::{Journal, JournalError, JournalResult};
use crate::ledger::{Change, Entry, Fallback};
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::discover::CgroupVersion;
use tidegate_cgroup::group::{GroupError, GroupPath, Groups};
use tracing::warn;

const DEPTH_MAX: u32 = 8;

/// The groups whose quotas a search reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Read {
    /// Those whose quota this journal does not know.
    Unknown,
    All,
}

/// A group's own quota, which is lifted while it is in the way of a lower one above it (v1).
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
fn lifted(own: Bandwidth) -> Bandwidth {
    Bandwidth {
        quota_us: None,
        ..own
    }
}

/// The lowest ratio on the way: v1 writes quota and period apart, and the tighter order of the two
/// is taken.
fn lowest(from: &Bandwidth, to: &Bandwidth) -> u128 {
    let ratio = |quota_us, period_us| {
        Bandwidth {
            quota_us,
            period_us,
            burst_us: 0,
        }
        .ratio()
    };
    to.ratio()
        .min(ratio(to.quota_us, from.period_us))
        .min(ratio(from.quota_us, to.period_us))
}

/// Groups within `root` begin with the same letters, and so stand side by side in the tree.
fn after(root: &GroupPath) -> (Bound<&GroupPath>, Bound<&GroupPath>) {
    (Bound::Excluded(root), Bound::Unbounded)
}

fn begins_with(group: &GroupPath, root: &GroupPath) -> bool {
    root.is_root() || group.as_str().starts_with(root.as_str())
}

/// A limit that is no faster than the one that was found; a burst goes with either, for it leaves
/// the mean as it is.
fn within_found(own: Bandwidth, found: Bandwidth) -> Bandwidth {
    match found.quota_us {
        Some(quota_us) if !own.rate_no_above(&found) => Bandwidth {
            burst_us: own.burst_us.min(quota_us),
            ..found
        },
        _ => own,
    }
}

impl Journal {
    pub(super) fn find_lifted(&mut self) {
        if self.groups.version() != CgroupVersion::V1 {
            return;
        }
        for entry in self.ledger.entries() {
            let Change::Bandwidth { was, ours, .. } = &entry.change else {
                continue;
            };
            if was.quota_us.is_some() && *ours == lifted(*was) {
                let lifted = self
                    .groups
                    .bandwidth(&entry.group)
                    .is_ok_and(|now| now != *was);
                let quota = OwnQuota { own: *was, lifted };
                self.quota_tree.insert(entry.group.clone(), quota);
            }
        }
    }

    /// Writes a moving quota: into the journal, then to the group, with what stands in its way
    /// further down.
    pub fn write_quota(
        &mut self,
        group: &GroupPath,
        from: &Bandwidth,
        to: &Bandwidth,
    ) -> JournalResult<()> {
        self.note_owners(group)?;
        let known = self.quota_tree.get(group).copied();
        let least = self.least_above(group);
        if least == u128::MAX && known.is_none() {
            self.record_write(group, from, to)?;
            return self
                .put(group, from, to)
                .inspect_err(|_| self.write_failed(group));
        }
        // Below another quota that moves, as that of a side gate while it is measured.
        let stands = known.map_or(*from, |quota| quota.standing());
        let quota = OwnQuota {
            own: *to,
            lifted: to.ratio() > least,
        };
        self.record_write(group, &stands, &quota.standing())?;
        self.stand(group, &stands, quota).inspect_err(|_| {
            self.write_failed(group);
            match known {
                Some(known) => self.quota_tree.insert(group.clone(), known),
                None => self.quota_tree.remove(group),
            };
        })
    }

    /// The owner of a group may have changed its limit since the last write: that is noted before
    /// it is written over.
    fn note_owners(&mut self, group: &GroupPath) -> JournalResult<()> {
        let Some(id) = self.id_of(group, Change::is_bandwidth) else {
            return Ok(());
        };
        if self.has_made(group) {
            return Ok(());
        }
        let Ok(found) = self.groups.bandwidth(group) else {
            // The write says why.
            return Ok(());
        };
        let moved = self.ledger.moving().get(id);
        if moved.is_some_and(|moved| !moved.may_be(&found)) {
            self.replace_before(group, found)?;
        }
        Ok(())
    }

    /// Gives `group` a quota of its own, which stays until it is set again or taken back, or the
    /// limit that was found there, if that is lower. What stands as it should is not written: a
    /// write is a refill. Returns the limit that holds.
    pub fn set_own(
        &mut self,
        group: &GroupPath,
        gate: &str,
        own: Bandwidth,
        fallback: Fallback,
    ) -> JournalResult<Bandwidth> {
        self.end_burst(group);
        let standing = self.groups.bandwidth(group)?;
        let found = match self.entry(group, Change::is_bandwidth) {
            Some(Entry {
                change: Change::Bandwidth { was, .. },
                ..
            }) => *was,
            _ => standing,
        };
        let own = within_found(own, found);
        let quota = OwnQuota {
            own,
            lifted: own.ratio() > self.least_above(group),
        };
        let known = self.id_of(group, Change::is_bandwidth);
        match known {
            None => {
                let change = Change::Bandwidth {
                    was: standing,
                    ours: own,
                    previous: Some(standing),
                };
                let entry = self.new_entry(group, gate, change, fallback)?;
                self.ledger.record(entry)?;
            }
            Some(id) => {
                self.belongs_to(id, gate)?;
                self.note_own(id, &standing, &own)?;
            }
        }
        self.stand(group, &standing, quota)?;
        Ok(own)
    }

    /// Gives a group for one process or task its gate's cap. The journal has the group by its
    /// family and nothing of its quota, which ends with the group.
    pub fn set_subgroup_cap(&mut self, subgroup: &GroupPath, own: Bandwidth) -> JournalResult<()> {
        let standing = self.groups.bandwidth(subgroup)?;
        let lifted = own.ratio() > self.least_above(subgroup);
        self.stand(subgroup, &standing, OwnQuota { own, lifted })
            .inspect_err(|_| self.end_own(subgroup))
    }

    fn stand(
        &mut self,
        group: &GroupPath,
        standing: &Bandwidth,
        quota: OwnQuota,
    ) -> JournalResult<()> {
        self.quota_tree.insert(group.clone(), quota);
        if *standing != quota.standing() {
            self.put(group, standing, &quota.standing())?;
        }
        Ok(())
    }

    /// The owner of a group that is not ours has changed its limit to `found`: that is what is put
    /// back, and what the gate's `own` does not exceed. Returns whether it is lower, and so holds.
    pub fn found_again(
        &mut self,
        group: &GroupPath,
        found: Bandwidth,
        own: Bandwidth,
    ) -> JournalResult<bool> {
        let is_lower = found.quota_us.is_some() && found.rate_no_above(&own);
        self.replace_before(group, found)?;
        let holds = if is_lower { found } else { own };
        if let Some(id) = self.id_of(group, Change::is_bandwidth) {
            self.ledger.update(id, |entry| {
                if let Change::Bandwidth { ours, previous, .. } = &mut entry.change {
                    (*ours, *previous) = (holds, Some(found));
                }
            })?;
        }
        if let Some(quota) = self.quota_tree.get_mut(group) {
            quota.own = holds;
        }
        Ok(is_lower)
    }

    /// The owner of a group that is not ours has changed its limit to `found`, which is what is put
    /// back. Returns whether that is another limit than before. A burst that the owner left as ours
    /// is not the owner's, nor is the fallback, which the guardian writes, and systemd since it was
    /// told of it.
    pub fn replace_before(&mut self, group: &GroupPath, found: Bandwidth) -> JournalResult<bool> {
        let Some(entry) = self.entry(group, Change::is_bandwidth) else {
            return Ok(false);
        };
        let id = entry.id;
        let Change::Bandwidth { was, ours, .. } = entry.change else {
            return Ok(false);
        };
        let is_of = |floor: Bandwidth| floor.rate_ucpu() == found.rate_ucpu();
        if matches!(entry.fallback, Fallback::Floor { bandwidth } if is_of(bandwidth)) {
            return Ok(false);
        }
        let mut now = found;
        // A loop's last write is among the moving ones.
        let moved = self.ledger.moving().get(id);
        let is_ours = |burst_us| {
            let moved = moved.iter().flat_map(|one| [one.previous, one.intended]);
            moved.chain([ours]).any(|one| one.burst_us == burst_us)
        };
        if is_ours(found.burst_us) {
            now.burst_us = was.burst_us.min(found.quota_us.unwrap_or(u64::MAX));
        }
        if now == was {
            return Ok(false);
        }
        self.ledger.update(id, |entry| {
            if let Change::Bandwidth { was, .. } = &mut entry.change {
                *was = now;
            }
        })?;
        Ok(true)
    }

    /// Before a quota of its own changes from what stands.
    fn note_own(&mut self, id: u64, standing: &Bandwidth, own: &Bandwidth) -> JournalResult<()> {
        if self.ledger.note_moving(id, standing, own) {
            return Ok(());
        }
        let is_noted = self.ledger.get(id).is_some_and(
            |entry| matches!(&entry.change, Change::Bandwidth { ours, .. } if ours == own),
        );
        if !is_noted {
            self.ledger.update(id, |entry| {
                if let Change::Bandwidth { ours, previous, .. } = &mut entry.change {
                    (*ours, *previous) = (*own, Some(*standing));
                }
            })?;
        }
        Ok(())
    }

    /// Writes again what was written over; false where the group has no quota of its own.
    pub fn reassert_own(&mut self, group: &GroupPath) -> JournalResult<bool> {
        let Some(quota) = self.quota_tree.get(group).copied() else {
            return Ok(false);
        };
        let found = self.groups.bandwidth(group)?;
        if found != quota.standing() {
            self.put(group, &found, &quota.standing())?;
        }
        Ok(true)
    }

    pub(super) fn own_standing(&self, group: &GroupPath) -> Option<Bandwidth> {
        self.quota_tree.get(group).map(OwnQuota::standing)
    }

    /// The least ratio of the moving quotas above `group`, where that matters.
    fn least_above(&self, group: &GroupPath) -> u128 {
        if self.groups.version() != CgroupVersion::V1 {
            return u128::MAX;
        }
        let above = std::iter::successors(group.parent(), GroupPath::parent);
        above
            .filter(|above| self.limits(above))
            .filter_map(|above| self.groups.bandwidth(&above).ok())
            .map(|bandwidth| bandwidth.ratio())
            .min()
            .unwrap_or(u128::MAX)
    }

    fn put(&mut self, group: &GroupPath, from: &Bandwidth, to: &Bandwidth) -> JournalResult<()> {
        if self.groups.version() != CgroupVersion::V1 {
            self.groups.set_bandwidth(group, Some(*from), *to)?;
            return Ok(());
        }
        let low = lowest(from, to);
        self.lift_known(group, low)?;
        let mut result = self.groups.set_bandwidth(group, Some(*from), *to);
        // What is known stands as this journal wrote it, unless another program wrote since.
        for which in [Read::Unknown, Read::All] {
            let is_refused = matches!(&result, Err(error) if is_refused(error));
            if is_refused && self.lift_found(group, low, which)? > 0 {
                result = self.groups.set_bandwidth(group, None, *to);
            }
        }
        result?;
        self.lower_again(group, to);
        Ok(())
    }

    fn lift_known(&mut self, root: &GroupPath, low: u128) -> Result<(), GroupError> {
        let in_the_way = |(group, quota): (&GroupPath, &OwnQuota)| {
            let stands = !quota.lifted && quota.own.ratio() > low;
            (stands && group.is_within(root)).then(|| (group.clone(), quota.own))
        };
        let near = self.quota_tree.range::<GroupPath, _>(after(root));
        let near = near.take_while(|(group, _)| begins_with(group, root));
        let due: Vec<_> = near.filter_map(in_the_way).collect();
        // Main does not wait for a full /run: then a restore may leave groups without a limit
        // alone.
        if let Err(error) = self.note_lifted(&due) {
            warn!("{error}");
        }
        for (group, own) in due {
            match self.groups.set_bandwidth(&group, Some(own), lifted(own)) {
                Err(error) if !error.is_gone() => return Err(error),
                _ => {
                    let quota = OwnQuota { own, lifted: true };
                    self.quota_tree.insert(group, quota);
                }
            }
        }
        Ok(())
    }

    /// Before known quotas are lifted: what will stand is ours, too.
    fn note_lifted(&mut self, due: &[(GroupPath, Bandwidth)]) -> JournalResult<()> {
        let mut changed = Vec::new();
        for (group, own) in due {
            let to = lifted(*own);
            let Some(entry) = self.entry(group, Change::is_bandwidth) else {
                continue;
            };
            let is_noted = matches!(
                &entry.change,
                Change::Bandwidth { ours, previous, .. } if *ours == to || *previous == Some(to)
            );
            if !self.ledger.note_moving(entry.id, own, &to) && !is_noted {
                changed.push(with_previous(entry, to));
            }
        }
        Ok(self.ledger.record_all(Vec::new(), changed)?)
    }

    /// Lifts what stands in the way of `limit` on `group`, by whomever it was written.
    pub(super) fn lift_below(&mut self, group: &GroupPath, limit: &Bandwidth) -> JournalResult<()> {
        if self.groups.version() != CgroupVersion::V1 || !self.groups.exists(group) {
            return Ok(());
        }
        let standing = self.groups.bandwidth(group)?;
        self.lift_found(group, lowest(&standing, limit), Read::All)
            .map(drop)
    }

    /// Quotas above `low` that were given to groups below `root` (side work to groups that it made)
    /// are written down, all at once, and lifted; says how many.
    fn lift_found(&mut self, root: &GroupPath, low: u128, which: Read) -> JournalResult<usize> {
        let mut found = Vec::new();
        self.find_above(root, low, which, DEPTH_MAX, &mut found)?;
        for (group, standing) in &mut found {
            if self.end_burst(group)
                && let Ok(now) = self.groups.bandwidth(group)
            {
                *standing = now;
            }
        }
        self.record_lifted(&found)?;
        for (group, standing) in &found {
            match self
                .groups
                .set_bandwidth(group, Some(*standing), lifted(*standing))
            {
                Err(error) if error.is_gone() => continue,
                written => written?,
            };
            let own = self
                .quota_tree
                .get(group)
                .map_or(*standing, |quota| quota.own);
            let quota = OwnQuota { own, lifted: true };
            self.quota_tree.insert(group.clone(), quota);
        }
        Ok(found.len())
    }

    /// Leaves first: a parent cannot be narrowed, nor its limit lifted past its own parent's, but
    /// no quota is always allowed.
    fn find_above(
        &self,
        root: &GroupPath,
        low: u128,
        which: Read,
        depth: u32,
        found: &mut Vec<(GroupPath, Bandwidth)>,
    ) -> Result<(), GroupError> {
        for child in self.groups.children(root)? {
            if which == Read::Unknown && self.quota_tree.contains_key(&child) {
                continue;
            }
            let standing = match self.groups.bandwidth(&child) {
                Err(error) if error.is_gone() => continue,
                standing => standing?,
            };
            if depth > 0 {
                self.find_above(&child, low, which, depth - 1, found)?;
            }
            if standing.ratio() > low && standing.quota_us.is_some() {
                found.push((child, standing));
            }
        }
        Ok(())
    }

    fn record_lifted(&mut self, found: &[(GroupPath, Bandwidth)]) -> JournalResult<()> {
        let (mut new, mut changed) = (Vec::new(), Vec::new());
        for (group, standing) in found {
            match self.entry(group, Change::is_bandwidth) {
                Some(entry) => {
                    let moves = self
                        .ledger
                        .note_moving(entry.id, standing, &lifted(*standing));
                    if !moves {
                        changed.push(with_previous(entry, *standing));
                    }
                }
                None if !self.is_subgroup(group) => {
                    let change = Change::Bandwidth {
                        was: *standing,
                        ours: lifted(*standing),
                        previous: Some(*standing),
                    };
                    let gate = self.gate_around(group);
                    match self.new_entry(group, &gate, change, Fallback::Stay) {
                        Err(JournalError::Group(error)) if error.is_gone() => {}
                        entry => new.push(entry?),
                    }
                }
                _ => {}
            }
        }
        Ok(self.ledger.record_all(new, changed)?)
    }

    pub(super) fn is_subgroup(&self, group: &GroupPath) -> bool {
        let dir = group.parent();
        let mut around = dir.iter().flat_map(|dir| self.ledger.of_group(dir));
        around.any(|entry| {
            matches!(&entry.change, Change::Subgroups(family) if family.id_of(group).is_some())
        })
    }

    fn gate_around(&self, group: &GroupPath) -> String {
        let around = self
            .ledger
            .entries()
            .filter(|entry| group.is_within(&entry.group) && !entry.gate.is_empty())
            .max_by_key(|entry| entry.group.as_str().len());
        around.map_or_else(String::new, |entry| entry.gate.clone())
    }

    /// Where `root` leaves room again, what was lifted below it gets its own back.
    pub(super) fn lower_again(&mut self, root: &GroupPath, standing: &Bandwidth) {
        let ratio = standing.ratio();
        let near = self.quota_tree.range_mut::<GroupPath, _>(after(root));
        for (group, quota) in near.take_while(|(group, _)| begins_with(group, root)) {
            if !quota.lifted || quota.own.ratio() > ratio || !group.is_within(root) {
                continue;
            }
            let own = quota.own;
            // Its owner may have given it another limit meanwhile.
            if self.groups.bandwidth(group).ok() != Some(lifted(own)) {
                continue;
            }
            let mut entries = self.ledger.of_group(group);
            if let Some(entry) = entries.find(|one| one.change.is_bandwidth()) {
                // One without a slot has its own limit in the entry.
                let _ = self.ledger.note_moving(entry.id, &lifted(own), &own);
            }
            match self.groups.set_bandwidth(group, Some(lifted(own)), own) {
                Ok(_) => quota.lifted = false,
                Err(error) if error.is_gone() => {}
                Err(error) => warn!("{error}; the groups above limit it meanwhile"),
            }
        }
    }

    /// These groups were removed.
    pub fn end_subgroup_caps(&mut self, removed: &[GroupPath]) {
        for group in removed {
            // Another task may have its number by now.
            if !self.groups.exists(group) {
                self.end_own(group);
            }
        }
    }

    /// The gate of `group` has no quota of its own any more: it must not be given it again, even
    /// where what stood before could not be put back yet.
    pub fn end_own(&mut self, group: &GroupPath) {
        self.quota_tree.remove(group);
    }
}

fn with_previous(entry: &Entry, standing: Bandwidth) -> Entry {
    let mut entry = entry.clone();
    if let Change::Bandwidth { previous, .. } = &mut entry.change {
        *previous = Some(standing);
    }
    entry
}

fn is_refused(error: &GroupError) -> bool {
    error.errno() == Some(libc::EINVAL)
}

/// The nearest group above whose quota is below `own`, and that quota: v1 refuses to go above it,
/// v2 holds to it.
pub fn limited_above(
    groups: &Groups,
    group: &GroupPath,
    own: &Bandwidth,
) -> Option<(GroupPath, Bandwidth)> {
    let mut at = group.parent();
    while let Some(above) = at.filter(|above| !above.is_root()) {
        match groups.bandwidth(&above) {
            Ok(limit) if limit.ratio() < own.ratio() => return Some((above, limit)),
            _ => at = above.parent(),
        }
    }
    None
}
