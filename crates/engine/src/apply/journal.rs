//! The journal: what is written over what, by gate and group, and always before the kernel file.
//! Opening it, putting back, forgetting.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use tidegate_terms as terms;

use super::quota_tree::QuotaTree;
use crate::ledger::{
    self, Change, Entry, Fallback, Ledger, LedgerError, Moving, NewEntry, OpenReport, Outcome,
};
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::class::{self, set_yielding};
use tidegate_cgroup::group::{GroupError, GroupPath, Groups};
use tidegate_cgroup::subgroups::Family;

pub type JournalResult<T> = Result<T, JournalError>;

/// Why the journal could not be kept; the knob is then not written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Group(#[from] GroupError),
    #[error(
        "ledger: group {0}: its quota or background is not in the journal; this is a fault in tidegate, please report it"
    )]
    NotMoving(GroupPath),
    /// Groups for one each that are others than those asked for.
    #[error(
        "cap_scope: group {0}: it is still divided otherwise; unset its caps, then set them again"
    )]
    Divided(GroupPath),
}

pub struct Journal {
    pub(super) ledger: Ledger,
    pub(super) groups: Arc<Groups>,
    pub(super) quota_tree: QuotaTree,
}

/// A gate's fallback as the ledger keeps it. `floor` is what the tolerance comes to on this
/// machine.
pub fn fallback_of(wanted: terms::Fallback, floor: Bandwidth) -> Fallback {
    match wanted {
        terms::Fallback::Floor => Fallback::Floor { bandwidth: floor },
        terms::Fallback::Restore => Fallback::Restore,
        terms::Fallback::Hold(span) => Fallback::Hold {
            seconds: u32::try_from(span.ns() / 1_000_000_000).unwrap_or(u32::MAX),
        },
    }
}

fn tell(entry: &Entry, outcome: &Outcome) -> String {
    let what = format!("{} of {}", entry.change.name(), entry.group);
    match outcome {
        Outcome::Restored => format!("{what}: restored"),
        Outcome::NotOurs { found } => format!("{what}: left alone, another program wrote {found}"),
        Outcome::Gone => format!("{what}: gone"),
        Outcome::Kept => format!("{what}: kept"),
        Outcome::Failed { why } => format!("{what}: not restored: {why}"),
    }
}

impl Journal {
    pub fn open(dir: &Path, groups: Arc<Groups>) -> Result<(Self, OpenReport), LedgerError> {
        let moving = Moving::open(&dir.join(ledger::MOVING_FILE))?;
        let (ledger, report) = Ledger::open(Arc::clone(groups.fs()), dir, moving, &groups)?;
        let mut journal = Self {
            ledger,
            groups,
            quota_tree: QuotaTree::new(),
        };
        journal.find_lifted();
        Ok((journal, report))
    }

    pub(super) fn new_entry(
        &self,
        group: &GroupPath,
        gate: &str,
        change: Change,
        fallback: Fallback,
    ) -> JournalResult<NewEntry> {
        let group_id = self.groups.id(group)?;
        Ok(NewEntry {
            gate: gate.to_owned(),
            group: group.clone(),
            group_id,
            change,
            fallback,
        })
    }

    /// Puts back all that is in the journal for `gate`, newest first. Says of each what became of
    /// it, and whether it is back.
    ///
    /// Groups for one each that are still there could not be dissolved just before, without this
    /// lock: that is not tried again under it, for the loop waits; nor is who is in them moved
    /// home. Both stay in the journal for the next agent or `repair`.
    pub fn restore_gate(&mut self, gate: &str) -> Vec<(String, bool)> {
        let is_subgroups = |entry: &Entry| matches!(entry.change, Change::Subgroups(_));
        let of_gate = || self.ledger.of_gate(gate);
        let divided = of_gate().any(is_subgroups);
        let waits = |entry: &&Entry| {
            divided && (is_subgroups(entry) || matches!(entry.change, Change::Membership { .. }))
        };
        let ids = of_gate().filter(|entry| !waits(entry));
        let ids: Vec<u64> = ids.map(|entry| entry.id).collect();
        let outcomes = self.put_back(&ids);
        let is_back = |outcome: &Outcome| matches!(outcome, Outcome::Restored | Outcome::Gone);
        outcomes
            .iter()
            .map(|(entry, outcome)| (tell(entry, outcome), is_back(outcome)))
            .collect()
    }

    /// What a guardian wrote over these once they were put back.
    pub fn undo_late_fallback(&self, entries: &[Entry]) {
        for entry in entries {
            if let Err(error) = ledger::undo_late_fallback(&self.groups, entry) {
                tracing::warn!(%error, "a guardian's fallback stays");
            }
        }
    }

    /// Newest first; and again what was refused because a group above it was not yet back (v1: no
    /// quota above its parent's).
    fn put_back(&mut self, ids: &[u64]) -> Vec<(Entry, Outcome)> {
        let mut outcomes = self.ledger.restore(&self.groups, ids);
        let failed = |(entry, outcome): &(Entry, Outcome)| {
            entry.change.is_bandwidth() && matches!(outcome, Outcome::Failed { .. })
        };
        if outcomes.iter().any(failed) {
            let mut again = Vec::new();
            for (entry, outcome) in outcomes.iter().filter(|one| failed(one)) {
                tracing::info!("{}; tried again", tell(entry, outcome));
                again.push(entry.id);
            }
            again.sort_unstable();
            outcomes.retain(|one| !failed(one));
            outcomes.extend(self.ledger.restore(&self.groups, &again));
        }
        self.forget_own(outcomes.iter().map(|(entry, _)| entry));
        for (entry, outcome) in &outcomes {
            if entry.change.is_bandwidth()
                && matches!(outcome, Outcome::Restored | Outcome::NotOurs { .. })
                && let Ok(standing) = self.groups.bandwidth(&entry.group)
            {
                self.lower_again(&entry.group, &standing);
            }
        }
        outcomes
    }

    /// Puts back what is asked for, newest first; says what could not be.
    pub fn restore_lines(&mut self, wanted: impl Fn(&Entry) -> bool) -> Vec<String> {
        let ids = self.ledger.ids_where(wanted);
        self.lines_of(&ids)
    }

    pub fn restore_lines_of(
        &mut self,
        group: &GroupPath,
        wanted: impl Fn(&Change) -> bool,
    ) -> Vec<String> {
        let of_group = self.ledger.of_group(group);
        let ids = of_group.filter(|entry| entry.group == *group && wanted(&entry.change));
        let ids: Vec<u64> = ids.map(|entry| entry.id).collect();
        self.lines_of(&ids)
    }

    fn lines_of(&mut self, ids: &[u64]) -> Vec<String> {
        let is_back = |outcome: &Outcome| matches!(outcome, Outcome::Restored | Outcome::Gone);
        self.put_back(ids)
            .iter()
            .filter(|(_, outcome)| !is_back(outcome))
            .map(|(entry, outcome)| tell(entry, outcome))
            .collect()
    }

    pub fn restore_where(&mut self, wanted: impl Fn(&Entry) -> bool) -> Vec<String> {
        let ids = self.ledger.ids_where(wanted);
        let outcomes = self.put_back(&ids);
        outcomes
            .iter()
            .map(|(entry, outcome)| tell(entry, outcome))
            .collect()
    }

    /// What happens without an agent, `dead_seconds` after its death. Limits come before processes:
    /// moving one waits for every fork on the machine, and seconds of that were seen where side
    /// work forks on a full one.
    pub fn fall_back(&mut self, dead_seconds: u64) -> Vec<String> {
        let mut report = self.make_way();
        let mut order = ledger::RestoreOrder::default();
        let mut restored = BTreeSet::new();
        let one = |entry: &Entry| {
            let outcome = order.after(entry, || {
                ledger::fall_back(&self.groups, self.ledger.moving(), entry, dead_seconds)
            });
            if outcome == Outcome::Restored && entry.change.is_idle_class() {
                restored.insert(entry.group.clone());
            }
            (outcome != Outcome::Kept).then(|| tell(entry, &outcome))
        };
        let newest_first = || self.ledger.entries().rev();
        let moves = |entry: &&Entry| matches!(entry.change, Change::Membership { .. });
        let written = newest_first()
            .filter(|entry| !moves(entry))
            .chain(newest_first().filter(moves))
            .filter_map(one);
        report.extend(written);
        report.extend(self.yield_again_but(&restored));
        report
    }

    /// Groups that an agent had taken out of the idle class for a while go back: no process is left
    /// to do it when main needs it.
    pub fn yield_again(&mut self) -> Vec<String> {
        self.yield_again_but(&BTreeSet::new())
    }

    /// The same, but for those that were just put back to what they were before us.
    fn yield_again_but(&mut self, restored: &BTreeSet<GroupPath>) -> Vec<String> {
        let mut report = Vec::new();
        let mut relieved = self.relieved();
        relieved.retain(|group| !restored.contains(group));
        for group in relieved {
            let done = self
                .record_idle_class_change(&group, true)
                .and_then(|()| Ok(set_yielding(&self.groups, &group, true)?));
            report.push(match done {
                Ok(()) => format!("idle of {group}: set again"),
                Err(why) => format!("idle of {group}: not set again: {why}"),
            });
        }
        report
    }

    /// On v1, quotas that stand in the way of a floor above them are lifted; main comes before what
    /// is written down of it.
    fn make_way(&mut self) -> Vec<String> {
        let floors: Vec<(GroupPath, Bandwidth)> = self
            .ledger
            .entries()
            .filter_map(|entry| match entry.fallback {
                Fallback::Floor { bandwidth } => Some((entry.group.clone(), bandwidth)),
                _ => None,
            })
            .collect();
        let mut report = Vec::new();
        for (group, floor) in floors {
            if let Err(error) = self.lift_below(&group, &floor) {
                report.push(error.to_string());
            }
        }
        report
    }

    /// How many entries of another version are kept for that.
    pub fn unread(&self) -> usize {
        self.ledger.unread()
    }

    pub fn close(&self) {
        if let Err(error) = self.ledger.close() {
            tracing::warn!("{error}");
        }
    }

    pub fn united(&mut self, family: &Family) {
        let ours =
            |entry: &Entry| matches!(&entry.change, Change::Subgroups(known) if known == family);
        let ids = self.ledger.ids_where(ours);
        self.forget_ids(&ids);
    }

    pub fn set_background(&self, group: &GroupPath, background: bool) -> JournalResult<()> {
        match self.background_of(group) {
            Some(was) => Ok(class::set_background(
                &self.groups,
                group,
                &was,
                background,
            )?),
            None => Err(JournalError::NotMoving(group.clone())),
        }
    }

    pub fn end_boost(&mut self, id: u64) -> Vec<String> {
        self.lines_of(&[id])
    }

    pub fn forget_entry(&mut self, id: u64) {
        self.forget_ids(&[id]);
    }

    pub fn forget(&mut self, group: &GroupPath) {
        let ids = self.ledger.ids_where(|entry| entry.group.is_within(group));
        self.forget_ids(&ids);
    }

    pub fn forget_all(&mut self, groups: &BTreeSet<GroupPath>) {
        if groups.is_empty() {
            return;
        }
        let is_within = |group: &GroupPath| {
            std::iter::successors(Some(group.clone()), GroupPath::parent)
                .any(|above| groups.contains(&above))
        };
        let ids = self.ledger.ids_where(|entry| is_within(&entry.group));
        self.forget_ids(&ids);
    }

    /// A rehearsal's: nothing is written down (`ledger/batch.rs`).
    pub fn keep_in_memory(&mut self) {
        self.ledger.keep_in_memory();
    }

    /// Until [`Journal::end_batch`], many groups are written to (`ledger/batch.rs`).
    pub fn begin_batch(&mut self) {
        if let Err(error) = self.ledger.begin_batch() {
            tracing::warn!("{error}; each entry is written down with all others");
        }
    }

    pub fn end_batch(&mut self) {
        if let Err(error) = self.ledger.end_batch() {
            tracing::warn!("{error}");
        }
    }

    fn forget_ids(&mut self, ids: &[u64]) {
        let entries = ids.iter().filter_map(|id| self.ledger.get(*id));
        let entries: Vec<Entry> = entries.cloned().collect();
        if let Err(error) = self.ledger.forget(ids) {
            tracing::warn!("{error}");
        }
        self.forget_own(entries.iter());
    }

    fn forget_own<'a>(&mut self, entries: impl Iterator<Item = &'a Entry>) {
        for entry in entries {
            if !self.limits(&entry.group) {
                self.quota_tree.remove(&entry.group);
            }
            if let Change::Subgroups(family) = &entry.change
                && self.ledger.get(entry.id).is_none()
            {
                self.quota_tree
                    .retain(|group, _| family.id_of(group).is_none());
            }
        }
    }
}
