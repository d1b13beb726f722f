//! What the journal knows of the background and of rate caps: groups that come and go between the background and their own class, and gates that were
//! divided into groups for one each.

use std::sync::Arc;

use tidegate_knobs::group::{CpuClass, GroupPath, WEIGHT_DEFAULT};
use tidegate_knobs::ledger::{Change, Entry, Fallback};
use tidegate_knobs::units::Family;

use super::{Journal, JournalError};

impl Journal {
    /// Groups that [`Journal::record_idle_class_change`] took out of the idle class.
    pub fn relieved(&self) -> Vec<GroupPath> {
        let default = self.groups.weight_raw(WEIGHT_DEFAULT);
        let is_relieved = |entry: &&Entry| match entry.change {
            Change::Idle { ours, .. } => !ours,
            Change::Weight { ours, .. } => ours == default,
            _ => false,
        };
        self.ledger
            .entries()
            .iter()
            .filter(is_relieved)
            .map(|entry| entry.group.clone())
            .collect()
    }

    /// `group`, which is of class `was`, is about to go into the background and out of it by its soft cap.
    pub fn record_background(
        &mut self,
        group: &GroupPath,
        gate: &str,
        was: CpuClass,
        fallback: Fallback,
    ) -> Result<(), JournalError> {
        if self.entry(group, is_background).is_none() {
            let entry = self.new_entry(group, gate, Change::Background { was }, fallback)?;
            self.ledger.record(entry)?;
        }
        Ok(())
    }

    /// What a group with a soft cap is while it is not in the background.
    pub fn background_of(&self, group: &GroupPath) -> Option<CpuClass> {
        let own = |entry: &Entry| match &entry.change {
            Change::Background { was } if entry.group == *group => Some(*was),
            _ => None,
        };
        // A group for one each is ours, and was made with these.
        let one_of = |entry: &Entry| match &entry.change {
            Change::Units(family) => family.id_of(group).map(|_| CpuClass {
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

    /// Processes or tasks of `family` are about to get groups of their own.
    pub fn record_subgroups(
        &mut self,
        gate: &str,
        family: &Family,
        fallback: Fallback,
    ) -> Result<(), JournalError> {
        let known = self.family_of(&family.group);
        if let Some(known) = known.as_ref().filter(|known| *known != family) {
            return Err(JournalError::Divided(known.group.clone()));
        }
        if known.is_none() {
            let change = Change::Units(family.clone());
            let entry = self.new_entry(&family.group, gate, change, fallback)?;
            self.ledger.record(entry)?;
        }
        Ok(())
    }

    /// No group of `family` is left.
    pub fn united(&mut self, family: &Family) {
        let ours = |entry: &Entry| matches!(&entry.change, Change::Units(known) if known == family);
        if let Err(error) = self.ledger.forget(ours) {
            tracing::warn!("{error}");
        }
    }

    /// The groups for one each that a group was divided into.
    pub fn family_of(&self, group: &GroupPath) -> Option<Family> {
        match &self
            .entry(group, |change| matches!(change, Change::Units(_)))?
            .change
        {
            Change::Units(family) => Some(family.clone()),
            _ => None,
        }
    }

    /// Forgets groups of a family that are no more.
    pub fn forget_gone(&mut self, family: &Family) {
        let groups = Arc::clone(&self.groups);
        let gone =
            |entry: &Entry| family.id_of(&entry.group).is_some() && !groups.exists(&entry.group);
        if let Err(error) = self.ledger.forget(gone) {
            tracing::warn!("{error}");
        }
        self.forget_own();
    }

    /// Puts a group with a soft cap into the background or takes it out.
    pub fn set_background(&self, group: &GroupPath, background: bool) -> Result<(), JournalError> {
        match self.background_of(group) {
            Some(was) => Ok(self.groups.set_background(group, &was, background)?),
            None => Err(JournalError::NotMoving(group.clone())),
        }
    }

    /// A group with a soft cap is to have another weight whenever it is not in the background. False where it has no such cap.
    pub fn record_weight(&mut self, group: &GroupPath, weight: u32) -> Result<bool, JournalError> {
        let Some(id) = self.entry(group, is_background).map(|entry| entry.id) else {
            return Ok(false);
        };
        let raw = self.groups.weight_raw(weight);
        self.ledger.update(id, |entry| {
            if let Change::Background { was } = &mut entry.change {
                was.weight_raw = raw;
            }
        })?;
        Ok(true)
    }
}

pub(crate) fn is_background(change: &Change) -> bool {
    matches!(change, Change::Background { .. })
}
