//! Limiting processes and groups that were there before us, and that get back what they had.

use tidegate_api::{ApiError, ErrorKind};
use tidegate_knobs::bandwidth::Bandwidth;
use tidegate_knobs::group::{GroupError, GroupPath};
use tidegate_knobs::ledger::Fallback;
use tidegate_knobs::target::ProcessRef;
use tidegate_terms as terms;
use tracing::{info, warn};

use crate::agent::{Agent, refuse};
use crate::control_thread::lock;
use crate::gate::{Attachment, Gate, tighter};
use crate::journal::fallback_of;
use crate::limits::kind_of;
use crate::systemd::unit_of;

/// The group in place of the gate `name`. Its end is what no other group of ours has: no gate's name has this character, so it
/// is neither a root (the gate may be called `main`) nor a soft cap's group, and the group of one process or task ends in a
/// digit.
fn in_place_name(prefix: &str, name: &str) -> String {
    format!("{prefix}-{name}=")
}

impl Agent {
    /// Limits a process or group that was there before, as its class asks.
    pub(crate) fn attach(&self, gate: &mut Gate, attachment: Attachment) -> Result<(), ApiError> {
        if gate.needs_group() {
            self.check_not_own(&gate.record.target, &attachment)?;
            self.check_beside(gate, &attachment)?;
        }
        gate.record.notes.clear();
        gate.record.attachment = attachment;
        let name = gate.record.name.clone();
        let before = gate.record.attachment.clone();
        let limited = match gate.needs_group() {
            true => self.limit(gate),
            false => Ok(()),
        };
        let limited = limited.and_then(|()| self.put_on(gate));
        if limited.is_err() {
            self.take_off(gate);
            if !matches!(gate.record.attachment, Attachment::Observed { .. }) {
                self.unmark(gate.record.attachment.group());
            }
            // Nothing half done: what is in the journal for it is put back, in the opposite order.
            self.restore(&name);
            self.untell_systemd(gate);
            gate.record.attachment = before;
        }
        limited
    }

    fn limit(&self, gate: &mut Gate) -> Result<(), ApiError> {
        let fallback = gate.terms.fallback.value;
        match gate.record.attachment.clone() {
            Attachment::Observed {
                pid, start_ticks, ..
            } => self.lend(gate, pid, start_ticks, fallback),
            // What it asks for itself is written by `put_on`.
            Attachment::InPlace { .. } if !gate.is_limited() => Ok(()),
            Attachment::InPlace { group } => {
                let floor = self.floor_of(gate);
                let was = self.tell_systemd(gate, &group, floor);
                self.limit_foreign(&group, gate, was)?;
                gate.record.notes.push(
                    "it has a quota of its own beside the side root's, because it stays where it is; the allowance is \
                     shared out between them"
                        .to_owned(),
                );
                Ok(())
            }
            Attachment::Owned { .. } | Attachment::Moved { .. } => Ok(()),
        }
    }

    /// Moves a process that ran already: side work into the side root on v1; everything else into a child group in place.
    fn lend(
        &self,
        gate: &mut Gate,
        pid: i32,
        start_ticks: u64,
        fallback: terms::Fallback,
    ) -> Result<(), ApiError> {
        let name = gate.record.name.clone();
        let wrong = |error: GroupError| refuse(kind_of(&error))(&error);
        let in_place = in_place_name(self.run_dir.prefix(), &name);
        let v1_parent = if gate.is_limited() {
            self.ensure_side_root()?;
            self.side_root()
        } else {
            // Below the group that it is in, whose limits go on to hold.
            let at = self.groups.group_of(pid).map_err(wrong)?;
            at.unwrap_or_else(GroupPath::root)
        };
        let v1_name = if gate.is_limited() { &name } else { &in_place };
        let in_root = v1_parent
            .join(v1_name)
            .map_err(|error| refuse(ErrorKind::Usage)(&error))?;
        let plan = self
            .groups
            .plan_in_place(pid, &in_place, &in_root)
            .map_err(wrong)?;
        // What is in the side root stays there with the floor; only who is to be restored is moved back without an agent.
        let moved_back = match fallback_of(fallback, self.floor_now()) {
            Fallback::Floor { .. } => Fallback::Stay,
            other => other,
        };
        lock(&self.journal)
            .record_move(&name, plan, start_ticks, moved_back)
            .map_err(|error| refuse(ErrorKind::Internal)(&error))?;
        let placement = self
            .groups
            .place_in_place(pid, &in_place, &in_root)
            .map_err(wrong)?;
        self.check_moved(&placement, start_ticks)?;
        let at = placement.group.clone();
        gate.record.attachment = Attachment::Moved {
            placement,
            start_ticks,
        };
        if !gate.is_limited() {
            gate.record.notes.push(format!(
                "it was moved into a group of its own within the one it was in: {at}"
            ));
        } else if !at.is_within(&self.side_root()) {
            self.limit_foreign(&at, gate, None)?;
            gate.record.notes.push(
                "it stays in its unit (memory accounting, KillMode): it has a quota of its own in a child group there"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Puts back all that was written for a gate, and says what could not be: another writer's value, or a refusal.
    ///
    /// Moving a process can take seconds on a full machine, and the loop waits for the journal: so processes go back first,
    /// without it.
    pub(crate) fn restore(&self, gate: &str) -> Vec<String> {
        let moves = lock(&self.journal).moves_of(gate);
        for (placement, start_ticks) in moves {
            let is_same = ProcessRef::look_up(&*self.fs, placement.pid)
                .is_ok_and(|now| now.start_ticks == start_ticks);
            if is_same && let Err(error) = self.groups.place_back(&placement) {
                warn!("gate {gate}: {error}");
            }
        }
        // v1's cpuset hierarchy knows nothing of that.
        self.gather_cpuset();
        let mut left = Vec::new();
        for (line, is_back) in lock(&self.journal).restore_gate(gate) {
            info!(gate, "{line}");
            if !is_back {
                lock(&self.alerts).insert(format!("gate {gate}: {line}"));
                left.push(line);
            }
        }
        left
    }

    /// Puts on again what a fallback took off: an agent that is in control again goes on with a gate's terms.
    pub(crate) fn renew(&self, gate: &mut Gate) -> Result<(), ApiError> {
        self.renew_place(gate)?;
        self.put_on(gate)
    }

    fn renew_place(&self, gate: &mut Gate) -> Result<(), ApiError> {
        let name = gate.record.name.clone();
        match gate.record.attachment.clone() {
            Attachment::InPlace { group }
                if unit_of(gate).is_some() && !self.groups.exists(&group) =>
            {
                gate.away = true;
            }
            Attachment::InPlace { group } if gate.is_limited() => {
                let wrong = |error: GroupError| refuse(kind_of(&error))(&error);
                let unlimited = self
                    .groups
                    .bandwidth(&group)
                    .map_err(wrong)?
                    .quota_us
                    .is_none();
                let idle = self.groups.idle(&group).map_err(wrong)? != Some(false);
                // A unit that was restarted has what systemd was told, and is not in the journal yet.
                if unlimited || !idle || !lock(&self.journal).limits(&group) {
                    let was = self.tell_systemd(gate, &group, self.floor_of(gate));
                    self.limit_foreign(&group, gate, was)?;
                }
            }
            Attachment::Moved {
                placement,
                start_ticks,
            } => {
                // Gone, or where it was put: nothing to do.
                let now = ProcessRef::look_up(&*self.fs, placement.pid);
                let is_same = now.is_ok_and(|now| now.start_ticks == start_ticks);
                let at = self.groups.group_of(placement.pid).ok().flatten();
                if let Some(group) = at.filter(|at| is_same && !self.is_in(at, &placement.group)) {
                    // What is left of the old placement is settled first.
                    self.restore(&name);
                    let attachment = Attachment::Observed {
                        pid: placement.pid,
                        start_ticks,
                        group,
                    };
                    return self.attach(gate, attachment);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// All gates, after the guardian wrote the fallback.
    pub(crate) fn renew_all(&self) {
        let mut gates = lock(&self.gates);
        for line in crate::fallback::yield_again(&self.groups, &mut lock(&self.journal)) {
            info!("{line}");
        }
        for gate in gates.iter_mut() {
            if let Err(error) = self.renew(gate) {
                warn!("gate {}: {error}", gate.record.name);
                lock(&self.alerts).insert(error.to_string());
            }
        }
        if let Err(error) = self.publish(&gates) {
            lock(&self.alerts).insert(error.to_string());
        }
    }

    fn floor_of(&self, gate: &Gate) -> Bandwidth {
        tighter(self.floor_now(), gate.own_limit())
    }

    /// Saves what stands on a group that is not ours (or `was`, where systemd was just told something else), then makes it yield and
    /// gives it the floor.
    fn limit_foreign(
        &self,
        group: &GroupPath,
        gate: &Gate,
        was: Option<Bandwidth>,
    ) -> Result<(), ApiError> {
        let wrong = |error: GroupError| refuse(kind_of(&error))(&error);
        let bandwidth = self.groups.bandwidth(group).map_err(wrong)?;
        let floor = self.floor_of(gate);
        let fallback = fallback_of(gate.terms.fallback.value, floor);
        let gate = gate.record.name.as_str();
        // Idle is no danger to main: with the floor it stays, else it goes the way of the quota.
        let idle_fallback = match fallback {
            Fallback::Floor { .. } => Fallback::Stay,
            other => other,
        };
        self.make_yield(group, gate, idle_fallback)?;
        lock(&self.journal)
            .record_limit(group, gate, was.unwrap_or(bandwidth), fallback)
            .map_err(|error| refuse(ErrorKind::Internal)(&error))?;
        self.write_floor(group, bandwidth, floor)
    }
}
