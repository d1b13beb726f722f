//! A gate's own limit (quota, period and burst, and a hard cap for all of it) as the quota of its group.
//!
//! Where the loop moves the quota of that very group (a side gate that stays where it is), the loop holds to the own limit,
//! too; everywhere else it is written here, once, and stays.

use tidegate_api::{ApiError, ErrorKind};
use tidegate_knobs::bandwidth::Bandwidth;
use tidegate_knobs::discover::CgroupVersion;
use tidegate_knobs::group::GroupPath;
use tidegate_knobs::ledger::{Change, Fallback};
use tidegate_terms::Burst;

use crate::agent::{Agent, refuse};
use crate::control_thread::lock;
use crate::gate::{Attachment, Gate};
use crate::journal::{JournalError, fallback_of};
use crate::limits::kind_of;
use crate::quota_tree::limited_above;

impl Agent {
    /// Writes the gate's own limit to its group, or puts back what stood there before when it has none any more.
    pub(crate) fn put_on_bandwidth(&self, gate: &mut Gate) -> Result<(), ApiError> {
        self.take_up_burst(gate);
        let Some(group) = self.still_group(gate) else {
            return Ok(());
        };
        let Some(own) = gate.own_limit() else {
            self.take_off_bandwidth(gate);
            return Ok(());
        };
        if lock(&self.control).quotas.is_left_alone(&group) {
            return Ok(());
        }
        if let Attachment::InPlace { .. } = gate.record.attachment {
            self.check_not_own(&gate.record.target, &gate.record.attachment)?;
        }
        let own = self.without_burst(gate, own);
        self.note_limits(gate, &group, &own);
        let fallback = match (&gate.record.attachment, gate.terms.fallback.value) {
            (Attachment::Owned { .. }, _) => Fallback::Stay,
            // A limit of its own is no tighter without an agent: the floor is for what must yield.
            (_, wanted) => match fallback_of(wanted, own) {
                Fallback::Floor { .. } => Fallback::Stay,
                other => other,
            },
        };
        self.mark_own(gate, &group);
        let set = lock(&self.journal).set_own(&group, &gate.record.name, own, fallback);
        set.map_err(|error| self.explain_refused(gate, &group, &own, &error))
    }

    /// Puts back what stood on the gate's group before its own limit, where that is not the loop's.
    pub(super) fn take_off_bandwidth(&self, gate: &Gate) -> Vec<String> {
        let Some(group) = self.still_group(gate) else {
            return Vec::new();
        };
        let ours = |entry: &tidegate_knobs::ledger::Entry| {
            entry.group == group && matches!(entry.change, Change::Bandwidth { .. })
        };
        let journal = lock(&self.journal);
        if !journal.entries().iter().any(&ours) {
            return Vec::new();
        }
        drop(journal);
        self.unmark(&group);
        let mut journal = lock(&self.journal);
        let left = journal.restore_lines(ours);
        journal.end_own(&group);
        left
    }

    /// The gate's group, where its quota is not the loop's to move.
    fn still_group(&self, gate: &Gate) -> Option<GroupPath> {
        let group = match &gate.record.attachment {
            Attachment::Observed { .. } => return None,
            attachment => attachment.group(),
        };
        (self.limited_group(gate).as_ref() != Some(group)).then(|| group.clone())
    }

    fn without_burst(&self, gate: &mut Gate, own: Bandwidth) -> Bandwidth {
        const NOTE: &str = "burst: this kernel has none (it came with 5.14)";
        gate.record.notes.retain(|note| note != NOTE);
        let possible = self.as_kernel_has(own);
        if possible != own && gate.terms.burst.value != Burst::NONE {
            gate.record.notes.push(NOTE.to_owned());
        }
        possible
    }

    /// Without the burst that the kernel does not have: a hard cap near a whole CPU then gets up to 6 % less.
    pub(crate) fn as_kernel_has(&self, limit: Bandwidth) -> Bandwidth {
        match self.machine.features.burst.present {
            Some(false) => Bandwidth {
                burst_us: 0,
                ..limit
            },
            _ => limit,
        }
    }

    /// Says what the limits above make of it.
    fn note_limits(&self, gate: &mut Gate, group: &GroupPath, own: &Bandwidth) {
        const START: &str = "binds: ";
        gate.record.notes.retain(|note| !note.starts_with(START));
        if let Some((above, limit)) = self.limited_above(group, own) {
            gate.record.notes.push(format!(
                "{START}its own limit of {own} is above that of {above} ({limit}), which holds"
            ));
        }
    }

    /// A tighter limit above the gate's, which is not one that we move.
    pub(crate) fn limited_above(
        &self,
        group: &GroupPath,
        own: &Bandwidth,
    ) -> Option<(GroupPath, Bandwidth)> {
        let root = self.side_root();
        limited_above(&self.groups, group, own).filter(|(above, _)| *above != root)
    }

    fn explain_refused(
        &self,
        gate: &Gate,
        group: &GroupPath,
        own: &Bandwidth,
        error: &JournalError,
    ) -> ApiError {
        let refused =
            matches!(error, JournalError::Group(error) if error.errno() == Some(libc::EINVAL));
        let v1 = self.groups.version() == CgroupVersion::V1;
        match self.limited_above(group, own) {
            Some((above, limit)) if refused && v1 => {
                let detail = format!(
                    "quota: gate {}: {own} is more than {above} above it has ({limit}), which cgroup v1 refuses",
                    gate.record.name
                );
                ApiError::new(ErrorKind::Usage, detail).with_mend(format!(
                    "ask for at most {}‰ of a CPU, or raise the limit of {above} first",
                    limit.rate_ucpu().unwrap_or(0) / 1_000
                ))
            }
            _ => match error {
                JournalError::Group(error) => refuse(kind_of(error))(error),
                other => refuse(ErrorKind::Internal)(other),
            },
        }
    }
}
