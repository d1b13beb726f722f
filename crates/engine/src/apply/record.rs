//! What is about to be written, recorded first.

use super::journal::{Journal, JournalError, JournalResult};
use crate::ledger::{Change, Entry, Fallback, LedgerError, NewEntry};
use crate::limit::tighter;
use crate::locks::boost::{Boost, give};
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::group::{CpuClass, GroupPath, Placement, WEIGHT_DEFAULT, WEIGHT_MIN};
use tidegate_cgroup::sched::hint::Latency;
use tidegate_cgroup::sched::tasks::Whose;
use tidegate_cgroup::subgroups::Family;

impl Journal {
    /// An entry that an earlier gate left on the same group is this gate's.
    pub(super) fn belongs_to(&mut self, id: u64, gate: &str) -> JournalResult<()> {
        let is_other = self.ledger.get(id).is_some_and(|entry| entry.gate != gate);
        if is_other {
            let name = gate.to_owned();
            self.ledger.update(id, |entry| entry.gate = name)?;
        }
        Ok(())
    }

    pub fn record_idle_class(
        &mut self,
        group: &GroupPath,
        gate: &str,
        was: CpuClass,
        fallback: Fallback,
    ) -> JournalResult<()> {
        if let Some(id) = self.id_of(group, Change::is_idle_class) {
            return self.belongs_to(id, gate);
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
    ) -> JournalResult<()> {
        let raw = self
            .groups
            .weight_raw(if yielding { WEIGHT_MIN } else { WEIGHT_DEFAULT });
        let Some(id) = self.id_of(group, Change::is_idle_class) else {
            return Ok(());
        };
        self.ledger.update(id, |entry| match &mut entry.change {
            Change::Idle { ours, .. } => *ours = yielding,
            Change::Weight { ours, .. } => *ours = raw,
            _ => {}
        })?;
        Ok(())
    }

    /// Systemd takes a group out of the idle class when its owner gives it another weight, which is
    /// then what is put back. The kernel gives the default weight at the end of the idle class, so
    /// an owner's is not told from it, and the former one is put back.
    pub fn replace_weight_before(&mut self, group: &GroupPath) -> JournalResult<()> {
        let Some(entry) = self.entry(group, Change::is_idle_class) else {
            return Ok(());
        };
        let (id, Change::Idle { was, .. }) = (entry.id, &entry.change) else {
            return Ok(());
        };
        let found = self.groups.class(group)?;
        let default_raw = self.groups.weight_raw(WEIGHT_DEFAULT);
        if found.idle != Some(false) || [default_raw, was.weight_raw].contains(&found.weight_raw) {
            return Ok(());
        }
        self.ledger.update(id, |entry| {
            if let Change::Idle { was, .. } = &mut entry.change {
                was.weight_raw = found.weight_raw;
            }
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
    ) -> JournalResult<()> {
        if let Some(id) = self.id_of(group, Change::is_bandwidth) {
            return self.belongs_to(id, gate);
        }
        let was = match self.end_burst(group) {
            true => self.groups.bandwidth(group)?,
            false => was,
        };
        let change = Change::Bandwidth {
            was,
            ours: was,
            previous: None,
        };
        let entry = self.new_entry(group, gate, change, fallback)?;
        self.ledger.record_moving(entry, &was)?;
        Ok(())
    }

    /// The quota of `group` is about to go from `standing` to `intended`.
    pub fn record_write(
        &mut self,
        group: &GroupPath,
        standing: &Bandwidth,
        intended: &Bandwidth,
    ) -> JournalResult<()> {
        let id = self.id_of(group, Change::is_bandwidth);
        // What another writer wrote over ours does not become ours by being written over: it would
        // be taken for it later.
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

    pub fn record_move(
        &mut self,
        gate: &str,
        plan: Placement,
        start_ticks: u64,
        fallback: Fallback,
    ) -> JournalResult<()> {
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

    /// `group`, which is of class `was`, is about to go into the background and out of it by its
    /// soft cap.
    pub fn record_background(
        &mut self,
        group: &GroupPath,
        gate: &str,
        was: CpuClass,
        fallback: Fallback,
    ) -> JournalResult<()> {
        if let Some(id) = self.id_of(group, Change::is_background) {
            return self.belongs_to(id, gate);
        }
        let entry = self.new_entry(group, gate, Change::Background { was }, fallback)?;
        self.ledger.record(entry)?;
        Ok(())
    }

    pub fn record_subgroups(
        &mut self,
        gate: &str,
        family: &Family,
        fallback: Fallback,
    ) -> JournalResult<()> {
        let known = self.family_of(&family.group);
        if let Some(known) = known.as_ref().filter(|known| *known != family) {
            return Err(JournalError::Divided(known.group.clone()));
        }
        if known.is_none() {
            let change = Change::Subgroups(family.clone());
            let entry = self.new_entry(&family.group, gate, change, fallback)?;
            self.ledger.record(entry)?;
        }
        Ok(())
    }

    /// A group with a soft cap is to have another weight whenever it is not in the background.
    /// False where it has no such cap.
    pub fn record_weight(&mut self, group: &GroupPath, weight: u32) -> JournalResult<bool> {
        let Some(id) = self.id_of(group, Change::is_background) else {
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

    pub fn record_boost(
        &mut self,
        group: &GroupPath,
        gate: &str,
        boost: Boost,
    ) -> JournalResult<u64> {
        // Only the agent counts turns: without one they end.
        let entry = self.new_entry(group, gate, Change::Boost(boost), Fallback::Restore)?;
        Ok(self.ledger.record(entry)?)
    }

    /// `group` is about to be confined to these CPUs; where it is not in the journal yet, it had
    /// `was`.
    pub fn record_cpuset(
        &mut self,
        group: &GroupPath,
        was: &[u32],
        to: &[u32],
    ) -> JournalResult<()> {
        let is_cpuset = |change: &Change| matches!(change, Change::Cpuset { .. });
        if let Some(id) = self.id_of(group, is_cpuset) {
            self.ledger.update(id, |entry| {
                if let Change::Cpuset { previous, ours, .. } = &mut entry.change {
                    *previous = std::mem::replace(ours, to.to_vec());
                }
            })?;
            return Ok(());
        }
        let change = Change::Cpuset {
            was: was.to_vec(),
            previous: was.to_vec(),
            ours: to.to_vec(),
        };
        // Without an agent side work stays where it is: that costs main nothing, and the quota is
        // at the floor.
        let entry = self.new_entry(group, "", change, Fallback::Stay)?;
        self.ledger.record(entry)?;
        Ok(())
    }

    pub fn record_hint(
        &mut self,
        group: &GroupPath,
        gate: &str,
        latency: Latency,
        fallback: Fallback,
    ) -> JournalResult<Entry> {
        let entry = match latency.whose {
            Whose::Group => self.new_entry(group, gate, Change::Latency(latency), fallback)?,
            // It may go from group to group.
            Whose::Process(_) | Whose::Thread(_) => NewEntry {
                gate: gate.to_owned(),
                group: group.clone(),
                group_id: 0,
                change: Change::Latency(latency),
                fallback,
            },
        };
        let id = self.ledger.record(entry)?;
        let entry = self.ledger.get(id).cloned();
        entry.ok_or(JournalError::Ledger(LedgerError::NoEntry { id }))
    }

    /// `group` was made by us. Its identity is only known afterwards; a crash in between leaves an
    /// empty group with our name, which the next start finds by that.
    pub fn made(&mut self, group: &GroupPath, gate: &str) -> JournalResult<()> {
        if self.entry(group, Change::is_group).is_some() {
            return Ok(());
        }
        let entry = self.new_entry(group, gate, Change::Group, Fallback::Stay)?;
        self.ledger.record(entry)?;
        Ok(())
    }

    /// That write failed: what stands is noted, so that it is not taken for an outside write.
    pub fn write_failed(&mut self, group: &GroupPath) {
        let Some(id) = self.id_of(group, Change::is_bandwidth) else {
            return;
        };
        if let Ok(stands) = self.groups.bandwidth(group) {
            // The entry is in the journal, so it has its slot.
            let _ = self.ledger.note_moving(id, &stands, &stands);
        }
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
        let stale: Vec<(u64, Bandwidth)> = self.ledger.entries().filter_map(due).collect();
        for (id, bandwidth) in stale {
            let updated = self
                .ledger
                .update(id, |entry| entry.fallback = Fallback::Floor { bandwidth });
            if let Err(error) = updated {
                tracing::warn!("{error}");
            }
        }
    }

    /// Gives the tasks of an entry their turn; false where the entry is gone, as when its gate has
    /// just ended.
    pub fn start_boost(&self, id: u64) -> JournalResult<bool> {
        let Some(entry) = self.ledger.get(id) else {
            return Ok(false);
        };
        let Change::Boost(boost) = &entry.change else {
            return Ok(false);
        };
        let refused = |error| JournalError::Ledger(LedgerError::Kfs(error));
        give(&**self.groups.fs(), boost).map_err(refused)?;
        Ok(true)
    }
}
