//! What was written, over what, until when: written before the knob, so that the next agent can
//! tell after a crash our values from others' and put back what stood.
//!
//! `ledger.json` in the run directory is small and replaced whole (new file, rename; the directory
//! is on tmpfs, which needs no fsync). A limit that moves several times a second has its newest two
//! values in `ledger.moving` ([`Moving`]), and where many groups get terms at once, their entries
//! come line by line (`batch`). Entries of another boot mean nothing: cgroups do not survive a
//! boot.

mod batch;
mod entries;
mod entry;
mod moving;
mod restore;
mod restore_order;
mod stored;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use batch::StoreWhen;
use entries::Entries;
use stored::{Stored, Unread};

pub use entries::All;
pub use entry::{Change, Entry, Fallback, NewEntry};
pub use moving::{Moving, MovingError, MovingSlot, SLOTS as MOVING_LIMITS_MAX};
pub use restore::{Outcome, fall_back, own_groups, restore, standing_differs};
pub use restore_order::{RestoreOrder, undo_late_fallback};

use crate::clock::{ClockId, clock_ns};
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::group::{GroupError, GroupPath, Groups};
use tidegate_cgroup::sched::tasks::process_lives;
use tidegate_cgroup::{KernelFs, KfsError};

pub const FILE: &str = "ledger.json";
pub const MOVING_FILE: &str = "ledger.moving";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const BAD_KEPT_MAX: u32 = 20;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// There is no room: nothing may be loosened and no gate made until there is.
    #[error("ledger: {}: no space left; make room in /run (until then nothing is loosened and no gate is made)", .path.display())]
    NoSpace { path: PathBuf },
    #[error("ledger: {0}")]
    Kfs(#[from] KfsError),
    #[error(transparent)]
    Moving(#[from] MovingError),
    #[error("ledger: entry {id} is not there; this is a fault in tidegate, please report it")]
    NoEntry { id: u64 },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    pub set_aside: Option<PathBuf>,
    pub alerts: Vec<String>,
}

pub struct Ledger {
    fs: Arc<dyn KernelFs>,
    path: PathBuf,
    boot_id: String,
    next_id: u64,
    entries: Entries,
    unread: Vec<Unread>,
    moving: Moving,
    store_when: StoreWhen,
}

impl Ledger {
    /// Opens the ledger of the run directory, or starts one. Never fails over what it finds: a
    /// damaged file is set aside, entries of another boot or of groups that are no more are
    /// dropped, and all that is reported.
    pub fn open(
        fs: Arc<dyn KernelFs>,
        dir: &Path,
        moving: Moving,
        groups: &Groups,
    ) -> Result<(Self, OpenReport), LedgerError> {
        let boot_id = fs.read(Path::new(BOOT_ID))?.trim().to_owned();
        let path = dir.join(FILE);
        let mut ledger = Self {
            fs,
            path,
            boot_id,
            next_id: 1,
            entries: Entries::default(),
            unread: Vec::new(),
            moving,
            store_when: StoreWhen::default(),
        };
        let mut report = OpenReport::default();
        match ledger.load(&mut report)? {
            Some(mut stored) if stored.boot_id == ledger.boot_id => {
                if let Some(batch) = ledger.read(&ledger.batch_file())? {
                    stored.go_on(&batch);
                }
                ledger.next_id = stored.next_id.max(1);
                let (entries, unread) = stored.into_entries();
                ledger.adopt(entries, groups, &mut report);
                ledger.keep_unread(unread, groups, &mut report);
                // Slots of ids still to come belong to an agent that records just now (the guardian
                // reads beside it).
                let next_id = ledger.next_id;
                let keep = |id: u64| id >= next_id || ledger.has(id);
                ledger.moving.retain(keep);
            }
            None if report.set_aside.is_none() => {}
            Some(_) | None => ledger.moving.retain(|_| false),
        }
        Ok((ledger, report))
    }

    fn read(&self, path: &Path) -> Result<Option<String>, LedgerError> {
        match self.fs.read(path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.errno == libc::ENOENT => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn load(&self, report: &mut OpenReport) -> Result<Option<Stored>, LedgerError> {
        let Some(text) = self.read(&self.path)? else {
            return Ok(None);
        };
        let why = match Stored::read(&text) {
            Ok(stored) => return Ok(Some(stored)),
            Err(why) => why,
        };
        let aside = self.set_aside(report);
        report.alerts.push(format!(
            "ledger: {}: {why}; set aside as {aside}, our groups are found by their names instead",
            self.path.display()
        ));
        Ok(None)
    }

    fn set_aside(&self, report: &mut OpenReport) -> String {
        let name = |nth: u32| self.path.with_file_name(format!("ledger.bad-{nth}"));
        let free = (1..BAD_KEPT_MAX)
            .find(|nth| !self.fs.exists(&name(*nth)))
            .unwrap_or(BAD_KEPT_MAX);
        let aside = name(free);
        match self.fs.rename(&self.path, &aside) {
            Ok(()) => {
                report.set_aside = Some(aside.clone());
                aside.display().to_string()
            }
            // It will be replaced by the next record.
            Err(error) => format!("nothing ({error})"),
        }
    }

    fn adopt(&mut self, entries: Vec<Entry>, groups: &Groups, report: &mut OpenReport) {
        for entry in entries {
            // Ids stay unique even if the file was edited.
            self.next_id = self.next_id.max(entry.id.saturating_add(1));
            // A process is told by its start time; its group may be made only after the entry.
            if matches!(entry.change, Change::Membership { .. } | Change::Boost(_)) {
                self.entries.put(entry);
                continue;
            }
            if let Change::Latency(latency) = &entry.change
                && let Some(task) = latency.whose.task()
            {
                if process_lives(&*self.fs, task.tid, task.start_ticks) {
                    self.entries.put(entry);
                }
                continue;
            }
            match groups.id(&entry.group) {
                Ok(id) if id == entry.group_id => self.entries.put(entry),
                // Another group of that name, or none.
                Ok(_) => {}
                Err(error) if error.is_gone() => {}
                Err(error) => {
                    // It may be ours: kept, and tried again when it is restored.
                    report
                        .alerts
                        .push(format!("ledger: entry {}: {error}", entry.id));
                    self.entries.put(entry);
                }
            }
        }
    }

    /// Another version's entries stay in the file as they are, for as long as their groups are
    /// there.
    fn keep_unread(&mut self, unread: Vec<Unread>, groups: &Groups, report: &mut OpenReport) {
        for entry in unread {
            self.next_id = self.next_id.max(entry.id().unwrap_or(0).saturating_add(1));
            if entry.has_lost_its_group(groups) {
                continue;
            }
            report.alerts.push(format!(
                "ledger: {entry} was made by another version and cannot be undone by this one; kept for that version"
            ));
            self.unread.push(entry);
        }
    }

    fn has(&self, id: u64) -> bool {
        self.entries.get(id).is_some() || self.unread.iter().any(|entry| entry.id() == Some(id))
    }

    pub fn unread(&self) -> usize {
        self.unread.len()
    }

    pub fn entries(&self) -> All<'_> {
        self.entries.all()
    }

    pub fn of_gate(&self, gate: &str) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.of_gate(gate)
    }

    pub fn get(&self, id: u64) -> Option<&Entry> {
        self.entries.get(id)
    }

    /// The entries of this group, oldest first; those of groups for one each also by the group that
    /// these are in.
    pub fn of_group(&self, group: &GroupPath) -> impl Iterator<Item = &Entry> {
        self.entries.of_group(group)
    }

    pub fn moving(&self) -> &Moving {
        &self.moving
    }

    /// Records a change. **Before the knob is written**; when this fails, the knob must not be
    /// written, unless the write tightens what stands and can be told by its group's name.
    pub fn record(&mut self, new: NewEntry) -> Result<u64, LedgerError> {
        let id = self.next_id;
        self.record_all(vec![new], Vec::new()).map(|()| id)
    }

    /// Records new entries and new forms of known ones with one write of the file: all or none.
    pub fn record_all(
        &mut self,
        new: Vec<NewEntry>,
        changed: Vec<Entry>,
    ) -> Result<(), LedgerError> {
        // Suspend included.
        let at_boot_ns = clock_ns(ClockId::Boottime);
        let numbered = (self.next_id..).zip(new).map(|(id, new)| Entry {
            id,
            gate: new.gate,
            group: new.group,
            group_id: new.group_id,
            change: new.change,
            fallback: new.fallback,
            at_boot_ns,
        });
        let entries: Vec<Entry> = numbered.chain(changed).collect();
        let Some(last) = entries.iter().map(|entry| entry.id).max() else {
            return Ok(());
        };
        self.next_id = self.next_id.max(last + 1);
        let mut before = Vec::with_capacity(entries.len());
        for entry in entries {
            before.push((entry.id, self.get(entry.id).cloned()));
            self.entries.put(entry);
        }
        let written = self.write_down(before.iter().map(|(id, _)| *id));
        if written.is_err() {
            for (id, old) in before {
                self.entries.remove(id);
                old.into_iter().for_each(|old| self.entries.put(old));
            }
        }
        written
    }

    /// Records a limit that will move: as [`Ledger::record`], and takes a slot for it.
    pub fn record_moving(
        &mut self,
        new: NewEntry,
        standing: &Bandwidth,
    ) -> Result<u64, LedgerError> {
        // The slot first: an entry without one could not be followed.
        self.moving.take(self.next_id, standing)?;
        let id = self.next_id;
        self.record(new).inspect_err(|_| self.moving.give_back(id))
    }

    /// Notes, before a write, what a moving limit is at and what it will be. Costs a few stores;
    /// false when the entry is not a moving one: then do not write.
    #[must_use]
    pub fn note_moving(&self, id: u64, standing: &Bandwidth, intended: &Bandwidth) -> bool {
        self.moving.note(id, standing, intended)
    }

    /// Changes an entry before its knob is written again. The old form comes back when the file
    /// cannot be written.
    pub fn update(&mut self, id: u64, change: impl FnOnce(&mut Entry)) -> Result<(), LedgerError> {
        let mut new = self.get(id).cloned().ok_or(LedgerError::NoEntry { id })?;
        change(&mut new);
        self.record_all(Vec::new(), vec![Entry { id, ..new }])
    }

    /// Forgets entries after their knobs were put back. When /run is full they stay in the file,
    /// which is harmless: their knobs will be found to be at their old values, or gone.
    pub fn forget(&mut self, ids: &[u64]) -> Result<usize, LedgerError> {
        let gone = ids.iter().filter_map(|id| self.entries.remove(*id));
        let count = gone.count();
        if count > 0 {
            if self.store_when == StoreWhen::Batched {
                return Ok(count);
            }
            self.store()?;
            // Only now.
            self.let_slots_go();
        }
        Ok(count)
    }

    /// The numbers of the entries that are asked for, oldest first.
    pub fn ids_where(&self, wanted: impl Fn(&Entry) -> bool) -> Vec<u64> {
        let wanted = self.entries().filter(|entry| wanted(entry));
        wanted.map(|entry| entry.id).collect()
    }

    /// Puts back the entries with these numbers, the last first (so that a group is emptied before
    /// it is removed, and parents come after their children), and forgets those that are settled.
    pub fn restore(&mut self, groups: &Groups, ids: &[u64]) -> Vec<(Entry, Outcome)> {
        let mut outcomes = Vec::new();
        let mut order = RestoreOrder::default();
        for entry in ids.iter().rev().filter_map(|id| self.get(*id)) {
            let outcome = order.after(entry, || restore(groups, &self.moving, entry));
            outcomes.push((entry.clone(), outcome));
        }
        let settled: Vec<u64> = outcomes
            .iter()
            .filter(|(_, outcome)| outcome.is_settled())
            .map(|(entry, _)| entry.id)
            .collect();
        if let Err(error) = self.forget(&settled) {
            tracing::warn!(%error, "the ledger keeps entries that were put back");
        }
        for (entry, outcome) in &outcomes {
            if *outcome == Outcome::Restored
                && let Err(error) = restore_order::undo_late_fallback(groups, entry)
            {
                tracing::warn!(%error, "a guardian's fallback stays");
            }
        }
        outcomes
    }

    /// Removes the ledger's file when nothing is in it.
    pub fn close(&self) -> Result<(), LedgerError> {
        if self.entries().len() > 0 || !self.unread.is_empty() {
            return Ok(());
        }
        self.remove_batch();
        match self.fs.unlink(&self.path) {
            Err(error) if error.errno != libc::ENOENT => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn store(&self) -> Result<(), LedgerError> {
        if self.store_when == StoreWhen::Never {
            return Ok(());
        }
        let text = stored::written(&self.boot_id, self.next_id, self.entries(), &self.unread);
        self.fs.replace(&self.path, &text).map_err(unwritten)
    }
}

fn unwritten(error: KfsError) -> LedgerError {
    match error.errno {
        libc::ENOSPC | libc::EDQUOT => LedgerError::NoSpace { path: error.path },
        _ => LedgerError::Kfs(error),
    }
}

/// A group's identity is not the entry's: nothing of it is ours.
pub(crate) fn same_group(
    groups: &Groups,
    group: &GroupPath,
    group_id: u64,
) -> Result<bool, GroupError> {
    match groups.id(group) {
        Ok(id) => Ok(id == group_id),
        Err(error) if error.is_gone() => Ok(false),
        Err(error) => Err(error),
    }
}
