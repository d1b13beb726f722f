//! The ledger as the agent uses it: by gate and group, and always before the kernel file.

use std::path::Path;
use std::sync::Arc;

use tidegate_api::ErrorKind;
use tidegate_knobs::bandwidth::Bandwidth;
use tidegate_knobs::group::{
    CpuClass, GroupError, GroupPath, Groups, Placement, WEIGHT_DEFAULT, WEIGHT_MIN,
};
use tidegate_knobs::ledger::{
    self, Change, Entry, Fallback, Ledger, LedgerError, Moving, NewEntry, OpenReport, Outcome,
};
use tidegate_terms as terms;

use crate::gate::tighter;
use crate::limits::kind_of;
use crate::quota_tree::QuotaTree;

mod boost;
mod caps;
mod cpusets;
mod hints;
mod moves;
mod remove;

pub(crate) use boost::is_boost;
pub(crate) use caps::is_background;

/// Why the journal could not be kept; the knob is then not written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The group whose identity is to be written down.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// A moving quota's group that is not in the journal.
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

impl JournalError {
    /// As the socket names it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Group(error) => kind_of(error),
            _ => ErrorKind::Internal,
        }
    }
}

/// The ledger and the groups that it is about.
pub struct Journal {
    pub(crate) ledger: Ledger,
    pub(crate) groups: Arc<Groups>,
    /// Quotas of their own that groups have.
    pub(crate) quota_tree: QuotaTree,
}

/// A gate's fallback as the ledger keeps it. `floor` is what the tolerance comes to on this machine.
pub fn fallback_of(wanted: terms::Fallback, floor: Bandwidth) -> Fallback {
    match wanted {
        terms::Fallback::Floor => Fallback::Floor { bandwidth: floor },
        terms::Fallback::Restore => Fallback::Restore,
        terms::Fallback::Hold(span) => Fallback::Hold {
            seconds: u32::try_from(span.ns() / 1_000_000_000).unwrap_or(u32::MAX),
        },
    }
}

/// One line on how putting a knob back ended.
pub fn tell(entry: &Entry, outcome: &Outcome) -> String {
    let what = format!("{} of {}", entry.change.name(), entry.group);
    match outcome {
        Outcome::Restored => format!("{what}: restored"),
        Outcome::NotOurs { found } => format!("{what}: left alone, somebody else wrote {found}"),
        Outcome::Gone => format!("{what}: gone"),
        Outcome::Kept => format!("{what}: kept"),
        Outcome::Failed { why } => format!("{what}: not restored: {why}"),
    }
}

impl Journal {
    /// Opens the ledger in `dir`.
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

    pub(crate) fn entry(&self, group: &GroupPath, is: impl Fn(&Change) -> bool) -> Option<&Entry> {
        self.ledger
            .of_group(group)
            .find(|entry| entry.group == *group && is(&entry.change))
    }

    pub(crate) fn new_entry(
        &self,
        group: &GroupPath,
        gate: &str,
        change: Change,
        fallback: Fallback,
    ) -> Result<NewEntry, JournalError> {
        let group_id = self.groups.id(group)?;
        Ok(NewEntry {
            gate: gate.to_owned(),
            group: group.clone(),
            group_id,
            change,
            fallback,
        })
    }

    /// `group` was made by us. Its identity is only known afterwards; a crash in between leaves an empty group with our
    /// name, which the next start finds by that.
    pub fn made(&mut self, group: &GroupPath, gate: &str) -> Result<(), JournalError> {
        if self
            .entry(group, |change| matches!(change, Change::Group))
            .is_some()
        {
            return Ok(());
        }
        let entry = self.new_entry(group, gate, Change::Group, Fallback::Stay)?;
        self.ledger.record(entry)?;
        Ok(())
    }

    /// `group` is about to become idle (or of the least weight) and was `was`.
    pub fn record_idle_class(
        &mut self,
        group: &GroupPath,
        gate: &str,
        was: CpuClass,
        fallback: Fallback,
    ) -> Result<(), JournalError> {
        let is_class =
            |change: &Change| matches!(change, Change::Idle { .. } | Change::Weight { .. });
        if self.entry(group, is_class).is_some() {
            return Ok(());
        }
        let change = match was.idle {
            Some(_) => Change::Idle { was, ours: true },
            None => Change::Weight {
                was: was.weight_raw,
                ours: self.groups.weight_raw(WEIGHT_MIN),
            },
        };
        let entry = self.new_entry(group, gate, change, fallback)?;
        self.ledger.record(entry)?;
        Ok(())
    }

    /// `group`, which yields by us, is about to stop doing so for a while, or to begin again.
    pub fn record_idle_class_change(
        &mut self,
        group: &GroupPath,
        yielding: bool,
    ) -> Result<(), JournalError> {
        let raw = self
            .groups
            .weight_raw(if yielding { WEIGHT_MIN } else { WEIGHT_DEFAULT });
        let is_class =
            |change: &Change| matches!(change, Change::Idle { .. } | Change::Weight { .. });
        let Some(id) = self.entry(group, is_class).map(|entry| entry.id) else {
            return Ok(());
        };
        self.ledger.update(id, |entry| match &mut entry.change {
            Change::Idle { ours, .. } => *ours = yielding,
            Change::Weight { ours, .. } => *ours = raw,
            _ => {}
        })?;
        Ok(())
    }

    /// `group` is about to carry a moving quota; `was` stands.
    pub fn record_limit(
        &mut self,
        group: &GroupPath,
        gate: &str,
        was: Bandwidth,
        fallback: Fallback,
    ) -> Result<(), JournalError> {
        if self.entry(group, is_bandwidth).is_some() {
            return Ok(());
        }
        let entry = self.new_entry(group, gate, limit_change(was), fallback)?;
        self.ledger.record_moving(entry, &was)?;
        Ok(())
    }

    /// The quota of `group` is about to go from `standing` to `intended`.
    pub fn record_write(
        &mut self,
        group: &GroupPath,
        standing: &Bandwidth,
        intended: &Bandwidth,
    ) -> Result<(), JournalError> {
        let id = self.entry(group, is_bandwidth).map(|entry| entry.id);
        // What another writer wrote over ours does not become ours by being written over: it would be taken for it later.
        let known = id.and_then(|id| self.ledger.moving().get(id));
        let standing = match &known {
            Some(moved) if !moved.may_be(standing) => &moved.intended,
            _ => standing,
        };
        match id {
            Some(id) if self.ledger.note_moving(id, standing, intended) => Ok(()),
            _ => Err(JournalError::NotMoving(group.clone())),
        }
    }

    /// That write failed: what stands is noted, so that it is not taken for an outside write.
    pub fn write_failed(&mut self, group: &GroupPath) {
        let Some(id) = self.entry(group, is_bandwidth).map(|entry| entry.id) else {
            return;
        };
        if let Ok(stands) = self.groups.bandwidth(group) {
            // The entry is in the journal, so it has its slot.
            let _ = self.ledger.note_moving(id, &stands, &stands);
        }
    }

    /// Whether a limit of ours is on `group`.
    pub fn limits(&self, group: &GroupPath) -> bool {
        self.entry(group, is_bandwidth).is_some()
    }

    /// The rate that `group` was limited to before us; `u64::MAX` for not at all.
    pub fn limit_before(&self, group: &GroupPath) -> u64 {
        let was = self.entry(group, is_bandwidth).map(|entry| &entry.change);
        match was {
            Some(Change::Bandwidth { was, .. }) => was.rate_ucpu().unwrap_or(u64::MAX),
            _ => u64::MAX,
        }
    }

    /// A process is about to be moved as `plan` says.
    pub fn record_move(
        &mut self,
        gate: &str,
        plan: Placement,
        start_ticks: u64,
        fallback: Fallback,
    ) -> Result<(), JournalError> {
        let new = NewEntry {
            gate: gate.to_owned(),
            group: plan.group.clone(),
            // It may not be there yet; the process's start time tells it.
            group_id: 0,
            change: Change::Membership {
                start_ticks,
                placement: plan,
            },
            fallback,
        };
        self.ledger.record(new)?;
        Ok(())
    }

    /// Whether a process that ran before was moved into `group`.
    pub fn is_moved(&self, group: &GroupPath) -> bool {
        self.entry(group, |change| matches!(change, Change::Membership { .. }))
            .is_some()
    }

    /// The tolerance comes to `floor` now.
    /// The own limit of a gate (`own_of` its name) holds there, too, where it is the lower one.
    pub fn set_floor(&mut self, floor: Bandwidth, own_of: impl Fn(&str) -> Option<Bandwidth>) {
        let due = |entry: &Entry| match entry.fallback {
            Fallback::Floor { bandwidth } => {
                let due = tighter(floor, own_of(&entry.gate));
                (bandwidth != due).then_some((entry.id, due))
            }
            _ => None,
        };
        let stale: Vec<(u64, Bandwidth)> = self.ledger.entries().iter().filter_map(due).collect();
        for (id, bandwidth) in stale {
            let updated = self
                .ledger
                .update(id, |entry| entry.fallback = Fallback::Floor { bandwidth });
            if let Err(error) = updated {
                tracing::warn!("{error}");
            }
        }
    }

    /// Of the entries with these numbers, those whose knob holds what we did not write, with what was found.
    pub fn outside_writes(&self, which: impl Iterator<Item = usize>) -> Vec<(Entry, String)> {
        let differs = |entry: &Entry| {
            if is_bandwidth(&entry.change)
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
        which
            .filter_map(|number| self.ledger.entries().get(number))
            .filter(|entry| !divided(entry))
            .filter_map(differs)
            .collect()
    }

    /// Puts back all that is in the journal for `gate`, newest first. Says of each what became of it, and whether it is back.
    ///
    /// Groups for one each that are still there could not be dissolved just before, without this lock: that is not tried again
    /// under it, for the loop waits; nor is who is in them moved home. Both stay in the journal for the next agent or `repair`.
    pub fn restore_gate(&mut self, gate: &str) -> Vec<(String, bool)> {
        let is_units = |entry: &Entry| matches!(entry.change, Change::Units(_));
        let of_gate = |entry: &&Entry| entry.gate == gate;
        let divided = self.entries().iter().filter(of_gate).any(is_units);
        let waits = |entry: &Entry| {
            divided && (is_units(entry) || matches!(entry.change, Change::Membership { .. }))
        };
        let outcomes = self.put_back(|entry| entry.gate == gate && !waits(entry));
        let is_back = |outcome: &Outcome| matches!(outcome, Outcome::Restored | Outcome::Gone);
        outcomes
            .iter()
            .map(|(entry, outcome)| (tell(entry, outcome), is_back(outcome)))
            .collect()
    }

    /// Newest first; and again what was refused because a group above it was not yet back (v1: no quota above its parent's).
    fn put_back(&mut self, wanted: impl Fn(&Entry) -> bool) -> Vec<(Entry, Outcome)> {
        let mut outcomes = self.ledger.restore_where(&self.groups, &wanted);
        let failed = |(entry, outcome): &(Entry, Outcome)| {
            is_bandwidth(&entry.change) && matches!(outcome, Outcome::Failed { .. })
        };
        if outcomes.iter().any(failed) {
            let again: Vec<u64> = outcomes
                .iter()
                .filter(|one| failed(one))
                .map(|(entry, _)| entry.id)
                .collect();
            outcomes.retain(|one| !failed(one));
            let second = |entry: &Entry| again.contains(&entry.id);
            outcomes.extend(self.ledger.restore_where(&self.groups, second));
        }
        self.forget_own();
        outcomes
    }

    /// Puts back what is asked for, newest first; says what could not be.
    pub fn restore_lines(&mut self, wanted: impl Fn(&Entry) -> bool) -> Vec<String> {
        let is_back = |outcome: &Outcome| matches!(outcome, Outcome::Restored | Outcome::Gone);
        self.put_back(wanted)
            .iter()
            .filter(|(_, outcome)| !is_back(outcome))
            .map(|(entry, outcome)| tell(entry, outcome))
            .collect()
    }

    /// Puts back what is asked for, newest first.
    pub fn restore_where(&mut self, wanted: impl Fn(&Entry) -> bool) -> Vec<String> {
        let outcomes = self.put_back(wanted);
        outcomes
            .iter()
            .map(|(entry, outcome)| tell(entry, outcome))
            .collect()
    }

    /// What happens without an agent, `dead_seconds` after its death. Limits come before processes: moving one waits for
    /// every fork on the machine, and seconds of that were seen where side work forks on a full one.
    pub fn fall_back(&mut self, dead_seconds: u64) -> Vec<String> {
        let mut report = self.make_way();
        let mut order = ledger::InOrder::default();
        let one = |entry: &Entry| {
            let outcome = order.after(entry, || {
                ledger::fall_back(&self.groups, self.ledger.moving(), entry, dead_seconds)
            });
            (outcome != Outcome::Kept).then(|| tell(entry, &outcome))
        };
        let newest_first = || self.ledger.entries().iter().rev();
        let moves = |entry: &&Entry| matches!(entry.change, Change::Membership { .. });
        let written = newest_first()
            .filter(|entry| !moves(entry))
            .chain(newest_first().filter(moves))
            .filter_map(one);
        report.extend(written);
        report
    }

    /// On v1, quotas that stand in the way of a floor above them are lifted; main comes before what is written down of it.
    fn make_way(&mut self) -> Vec<String> {
        let floors: Vec<(GroupPath, Bandwidth)> = self
            .ledger
            .entries()
            .iter()
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

    /// Every entry.
    pub fn entries(&self) -> &[Entry] {
        self.ledger.entries()
    }

    /// Removes the file when nothing is in it.
    pub fn close(&self) {
        if let Err(error) = self.ledger.close() {
            tracing::warn!("{error}");
        }
    }
}

fn limit_change(was: Bandwidth) -> Change {
    Change::Bandwidth {
        was,
        ours: was,
        previous: None,
    }
}

pub(crate) fn is_bandwidth(change: &Change) -> bool {
    matches!(change, Change::Bandwidth { .. })
}
