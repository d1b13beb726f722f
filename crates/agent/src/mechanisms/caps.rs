//! Rate caps of one gate.
//!
//! A hard cap for all of a gate is a quota (`bandwidth`). A soft cap is the loop's ([`tidegate_knobs::control::SoftCaps`]): here
//! its group gets into the journal and, until the loop has looked, into the background.

use tidegate_api::{ApiError, CapView};
use tidegate_knobs::control::SoftCapped;
use tidegate_knobs::group::{GroupError, GroupPath};
use tidegate_knobs::ledger::{Entry, Fallback};
use tidegate_knobs::units::exempt;
use tidegate_terms::Class;

use crate::agent::{Agent, refuse};
use crate::control_thread::lock;
use crate::gate::{Attachment, Gate};
use crate::journal::{fallback_of, is_background};
use crate::limits::kind_of;

/// How notes on the background begin.
const START: &str = "background: ";
/// How notes on real-time tasks begin.
const EXEMPT: &str = "real-time: ";
/// So many of them are named.
const NAMED_MAX: usize = 8;

impl Agent {
    /// Puts the gate's caps on.
    pub(super) fn put_on_caps(&self, gate: &mut Gate) -> Result<(), ApiError> {
        self.note_exempt(gate);
        self.put_on_soft(gate)?;
        self.put_on_units(gate)
    }

    /// Back to what stood before.
    pub(super) fn take_off_caps(&self, gate: &Gate) -> Vec<String> {
        let mut left = self.take_off_units(gate);
        left.extend(self.take_off_soft(gate.record.attachment.group()));
        left
    }

    /// Tells the loop of the soft caps of all gates.
    pub(crate) fn publish_soft_caps(&self, gates: &[Gate]) {
        self.set_soft_caps(
            gates
                .iter()
                .filter_map(|gate| self.soft_capped(gate))
                .collect(),
        );
    }

    /// Real-time tasks are named: no cap acts on them.
    fn note_exempt(&self, gate: &mut Gate) {
        gate.record.notes.retain(|note| !note.starts_with(EXEMPT));
        if !gate.terms.is_bounded() {
            return;
        }
        let group = match &gate.record.attachment {
            Attachment::Observed { .. } => return,
            attachment => attachment.group(),
        };
        let found = exempt(&self.groups, group, NAMED_MAX);
        if !found.is_empty() {
            let named: Vec<String> = found
                .iter()
                .map(|(tid, comm)| format!("{tid} ({comm})"))
                .collect();
            gate.record
                .notes
                .push(format!("{EXEMPT}no cap acts on tasks {}", named.join(", ")));
        }
    }

    /// The group that the loop is to put into the background and out of it.
    pub(crate) fn soft_capped(&self, gate: &Gate) -> Option<SoftCapped> {
        let soft_ppt = gate.soft_for_all_ppt()?;
        let group = gate.record.attachment.group().clone();
        // A group that is not in the journal is in the background anyway, by its class or by an outside write.
        lock(&self.journal)
            .background_of(&group)
            .map(|_| SoftCapped { group, soft_ppt })
    }

    fn put_on_soft(&self, gate: &mut Gate) -> Result<(), ApiError> {
        gate.record.notes.retain(|note| !note.starts_with(START));
        let group = match &gate.record.attachment {
            Attachment::Observed { .. } => return Ok(()),
            attachment => attachment.group().clone(),
        };
        if gate.soft_for_all_ppt().is_none() {
            self.take_off_soft(&group);
            return Ok(());
        }
        let wrong = |error: GroupError| refuse(kind_of(&error))(&error);
        let fallback = match (&gate.record.attachment, gate.terms.fallback.value) {
            (Attachment::Owned { .. }, _) => Fallback::Stay,
            (_, wanted) => match fallback_of(wanted, self.floor_now()) {
                Fallback::Floor { .. } => Fallback::Stay,
                other => other,
            },
        };
        let mut journal = lock(&self.journal);
        if journal.background_of(&group).is_none() {
            let was = self.groups.class(&group).map_err(wrong)?;
            if was.idle == Some(true) {
                gate.record
                    .notes
                    .push(format!("{START}it is in the idle class whatever it uses"));
                return Ok(());
            }
            journal
                .record_background(&group, &gate.record.name, was, fallback)
                .map_err(|error| refuse(error.kind())(&error))?;
        }
        // A bucket begins empty.
        journal
            .set_background(&group, true)
            .map_err(|error| refuse(error.kind())(&error))?;
        drop(journal);
        lock(&self.control).soft_caps.invalidate(&group);
        gate.record
            .notes
            .extend(self.note_on_background(gate, &group));
        Ok(())
    }

    /// Takes a group out of the background for good.
    fn take_off_soft(&self, group: &GroupPath) -> Vec<String> {
        let ours = |entry: &Entry| entry.group == *group && is_background(&entry.change);
        if !lock(&self.journal).entries().iter().any(ours) {
            return Vec::new();
        }
        // The loop must not write behind the restore.
        lock(&self.control).soft_caps.drop(group);
        lock(&self.journal).restore_lines(ours)
    }

    /// The idle class counts where branches of the tree divide.
    fn note_on_background(&self, gate: &Gate, group: &GroupPath) -> Option<String> {
        let parent = group.parent()?;
        if parent.is_root() || gate.class() == Class::Side && parent == self.side_root() {
            return None;
        }
        let hint = match &gate.record.attachment {
            Attachment::Owned { .. } if parent == self.main_root() => {
                "; started with its soft cap, it would yield to all"
            }
            _ => "",
        };
        Some(format!(
            "{START}it yields to what else is in {parent}; to the rest of the machine only as that does{hint}"
        ))
    }

    /// The group of a new gate that is to yield to everything: it lies where its branch and all others divide.
    pub(crate) fn soft_group(&self, gate: &Gate) -> Option<String> {
        let at_top = gate.soft_ppt().is_some() && gate.class() != Class::Side;
        // No gate's name has this character, so no other group of ours has this name.
        at_top.then(|| format!("{}-soft={}", self.run_dir.prefix(), gate.record.name))
    }

    /// What the gate's soft cap did.
    pub(crate) fn cap_view(&self, gate: &Gate, now_ns: u64) -> Option<CapView> {
        let (stats, soft_ppt) = lock(&self.control)
            .soft_caps
            .stats(gate.record.attachment.group())?;
        let seconds = |ns: u64| ns as f64 / 1e9;
        let since = stats.background_since_ns;
        // Background for good is not looked at, so its counts end where they began.
        let background_pct = match soft_ppt {
            0 => 100.0,
            _ => 100.0 * stats.in_background_ns as f64 / stats.capped_ns.max(1) as f64,
        };
        Some(CapView {
            soft_permille: soft_ppt,
            in_background_seconds: since.map(|since_ns| seconds(now_ns.saturating_sub(since_ns))),
            background_pct,
            turns: stats.turns,
            level_ms: stats.level_ns as f64 / 1e6,
            used_background_seconds: seconds(stats.used_background_ns),
            used_foreground_seconds: seconds(stats.used_foreground_ns),
        })
    }

    /// Without an agent nothing would take the gate out of the background in time, so there it stays.
    pub(crate) fn leave_in_background(&self, gate: &Gate) -> bool {
        let group = gate.record.attachment.group();
        self.leave_units(&gate.record.name);
        lock(&self.control).soft_caps.drop(group);
        let journal = lock(&self.journal);
        journal.background_of(group).is_some() && journal.set_background(group, true).is_ok()
    }
}
