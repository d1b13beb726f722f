//! What must come before or after a restore, because another process may act on the same things
//! meanwhile.

use std::collections::BTreeMap;

use super::{Change, Entry, Fallback, MovingSlot, Outcome};
use tidegate_cgroup::class;
use tidegate_cgroup::group::{GroupResult, Groups};

/// A latency hint is found by the group that its tasks are in, and who is in a group of its own is
/// not where it was put: a process whose hint could not be taken back, or that could not be moved
/// back out of its own group, stays for the next try, or it would never be found again.
#[derive(Debug, Default)]
pub struct RestoreOrder {
    waits: BTreeMap<String, &'static str>,
}

impl RestoreOrder {
    /// What came of `entry`, by `restore` unless it has to wait.
    pub fn after(&mut self, entry: &Entry, restore: impl FnOnce() -> Outcome) -> Outcome {
        let moved = matches!(entry.change, Change::Membership { .. });
        if let Some(why) = self.waits.get(&entry.gate).filter(|_| moved) {
            return Outcome::Failed {
                why: (*why).to_owned(),
            };
        }
        let outcome = restore();
        if !matches!(outcome, Outcome::Failed { .. }) {
            return outcome;
        }
        let why = match entry.change {
            Change::Latency(_) => "its latency hint is still to be taken back",
            Change::Subgroups(_) => "some are still in groups of their own",
            _ => return outcome,
        };
        self.waits.insert(entry.gate.clone(), why);
        outcome
    }
}

/// A guardian that finds its agent frozen in the midst of a restore writes the floor over what was
/// just put back, by an entry that is still in the file, or takes a group back into the idle class;
/// the agent thaws and forgets the entry. So the process that has restored looks once more
/// afterwards.
pub fn undo_late_fallback(groups: &Groups, entry: &Entry) -> GroupResult<()> {
    if let Change::Idle { was, ours: false } = &entry.change
        && was.idle != Some(true)
        && groups.exists(&entry.group)
        && groups.idle(&entry.group)? == Some(true)
    {
        return class::restore_class(groups, &entry.group, was);
    }
    let (Change::Bandwidth { was, .. }, Fallback::Floor { bandwidth }) =
        (&entry.change, &entry.fallback)
    else {
        return Ok(());
    };
    let found = match groups.bandwidth(&entry.group) {
        Err(error) if error.is_gone() => return Ok(()),
        found => found?,
    };
    // v1 has the limit in files of their own, and either may be the one that was written last.
    let either = MovingSlot {
        previous: *was,
        intended: *bandwidth,
    };
    if found != *was && either.may_be(&found) {
        groups.set_bandwidth(&entry.group, Some(found), *was)?;
    }
    Ok(())
}
