//! Units of systemd as targets. A unit's group belongs to systemd, which writes its own values there whenever it sees a reason
//! (a property set, a restart, the start of a neighbour after `daemon-reload`). So systemd is told once what side work falls
//! back to, the idle class and the floor, and the value that moves goes to the group's file behind it: whenever systemd writes,
//! main is safe, and the agent writes its own value again. A gate follows its unit from group to group.

pub mod bus;
mod notes;

use tidegate_api::{ApiError, ErrorKind};
use tidegate_knobs::bandwidth::Bandwidth;
use tidegate_knobs::group::GroupPath;
use tidegate_knobs::ledger::{Change, Entry};
use tidegate_knobs::target::{Target, UnitName};
use tidegate_terms as terms;
use tracing::{info, warn};

use crate::agent::{Agent, refuse};
use crate::control_thread::lock;
use crate::gate::{Attachment, Gate};
use bus::{BusError, CpuValues};
use notes::Note;
pub(crate) use notes::take_back_where;

/// Looks between two questions to systemd about a unit whose group is gone; the group itself is looked for at each.
const LOOKS_A_QUESTION: u32 = 10;

/// The unit that a gate is for.
pub fn unit_of(gate: &Gate) -> Option<UnitName> {
    match Target::parse(&gate.record.target) {
        Ok(Target::Unit(unit)) => Some(unit),
        _ => None,
    }
}

/// What an absent agent means for what systemd was told: nothing while the floor stands.
fn taken_back_after_s(fallback: terms::Fallback) -> Option<u64> {
    match fallback {
        terms::Fallback::Floor => None,
        terms::Fallback::Restore => Some(0),
        terms::Fallback::Hold(span) => Some(span.ns() / 1_000_000_000),
    }
}

/// A failed call to systemd as the socket names it.
fn kind_of(error: &BusError) -> ErrorKind {
    match error {
        BusError::NoSystemd | BusError::NoBus { .. } => ErrorKind::Unsupported,
        BusError::NoUnit { .. } | BusError::NotRunning { .. } => ErrorKind::NotFound,
        BusError::Refused { .. } => ErrorKind::Denied,
    }
}

impl Agent {
    /// Where a unit's work is now.
    pub(crate) fn group_of_unit(&self, unit: &UnitName) -> Result<GroupPath, ApiError> {
        let wrong = |error: BusError| refuse(kind_of(&error))(&error);
        let state = bus::state(unit).map_err(wrong)?;
        if !state.is_known() {
            let unit = unit.to_string();
            return Err(wrong(BusError::NoUnit { unit }));
        }
        if state.group.is_empty() {
            let (unit, active) = (unit.to_string(), state.active);
            return Err(wrong(BusError::NotRunning { unit, active }));
        }
        let group =
            GroupPath::parse(&state.group).map_err(|error| refuse(ErrorKind::Usage)(&error))?;
        if !self.groups.exists(&group) {
            let detail = format!("unit {unit}: its group {group} is not in the cpu hierarchy");
            return Err(ApiError::new(ErrorKind::NotFound, detail).with_mend(format!(
                "have systemd put it there: systemctl set-property --runtime {unit} CPUAccounting=yes CPUWeight=100"
            )));
        }
        Ok(group)
    }

    /// Tells systemd what the gate's unit falls back to. Gives what limited the unit before us. That systemd cannot be told is
    /// no reason to leave main unprotected: then the gate's notes say what is missing.
    pub(crate) fn tell_systemd(
        &self,
        gate: &mut Gate,
        group: &GroupPath,
        floor: Bandwidth,
    ) -> Option<Bandwidth> {
        let unit = unit_of(gate)?;
        let told = self.try_tell(&unit, gate, group, floor);
        if let Err(why) = &told {
            warn!("gate {}: {why}", gate.record.name);
            let note = format!(
                "systemd does not know its fallback, so a daemon-reload may lift the limit for a second: {why}"
            );
            gate.record.notes.push(note);
        }
        told.ok()
    }

    fn try_tell(
        &self,
        unit: &UnitName,
        gate: &Gate,
        group: &GroupPath,
        floor: Bandwidth,
    ) -> Result<Bandwidth, String> {
        let name = &gate.record.name;
        let mut all = notes::load(&*self.fs, &self.run_dir);
        let ours = CpuValues::yielding(floor);
        let before = all
            .iter()
            .position(|note| note.gate == *name && note.unit == *unit);
        let was = match before {
            Some(at) => {
                all[at].ours = ours;
                all[at].was
            }
            None => {
                let was = bus::cpu_values(unit).map_err(|error| error.to_string())?;
                all.push(Note {
                    gate: name.clone(),
                    unit: unit.clone(),
                    was,
                    ours,
                    had: notes::drop_ins(unit),
                    taken_back_after_s: taken_back_after_s(gate.terms.fallback.value),
                });
                was
            }
        };
        let stands = self
            .groups
            .bandwidth(group)
            .ok()
            .filter(|_| before.is_none());
        notes::store(&*self.fs, &self.run_dir, &all)?;
        bus::set_cpu_values(unit, &ours).map_err(|error| error.to_string())?;
        self.note_kept(unit, name, all, ours);
        Ok(stands.unwrap_or_else(|| was.bandwidth()))
    }

    /// What systemd made of what it was told is what is found later. That it cannot be noted is no harm: it is known for ours.
    fn note_kept(&self, unit: &UnitName, gate: &str, mut all: Vec<Note>, ours: CpuValues) {
        let Ok(kept) = bus::cpu_values(unit) else {
            return;
        };
        if kept == ours || !kept.comes_of(&ours) {
            return;
        }
        for note in &mut all {
            if note.gate == gate && note.unit == *unit {
                note.ours = kept;
            }
        }
        if let Err(why) = notes::store(&*self.fs, &self.run_dir, &all) {
            warn!("gate {gate}: {why}");
        }
    }

    /// Has systemd forget what it was told for a gate; says what it could not.
    pub(crate) fn untell_systemd(&self, gate: &Gate) -> Vec<String> {
        if unit_of(gate).is_none() {
            return Vec::new();
        }
        let name = &gate.record.name;
        let lines = take_back_where(&*self.fs, &self.run_dir, |note| note.gate == *name);
        for line in &lines {
            warn!("gate {name}: {line}");
            lock(&self.alerts).insert(format!("gate {name}: {line}"));
        }
        lines
    }

    /// Whether what stands where the journal says otherwise is what systemd writes by itself: what it was told, or what stood
    /// before us where it was told nothing.
    pub(crate) fn is_systemds(&self, gates: &[Gate], entry: &Entry) -> bool {
        let Some(gate) = gates.iter().find(|gate| gate.record.name == entry.gate) else {
            return false;
        };
        if unit_of(gate).is_none() {
            return false;
        }
        let all = notes::load(&*self.fs, &self.run_dir);
        let told = all.iter().find(|note| note.gate == entry.gate);
        match &entry.change {
            Change::Bandwidth { was, .. } => {
                let expected = told.map_or(*was, |note| note.ours.bandwidth());
                self.groups
                    .bandwidth(&entry.group)
                    .is_ok_and(|found| found == expected)
            }
            Change::Idle { was, .. } => {
                let expected = told.map_or(was.idle, |_| Some(true));
                self.groups
                    .idle(&entry.group)
                    .is_ok_and(|found| found == expected)
            }
            _ => false,
        }
    }

    /// Looks where the gates' units are: a unit that was restarted has another group, one that stands still has none.
    pub(crate) fn follow_units(&self, look: u32) {
        let ask = look.is_multiple_of(LOOKS_A_QUESTION);
        let mut unknown = Vec::new();
        if ask {
            // systemd may take its time; nothing waits for it with the gates locked.
            let away: Vec<(String, UnitName)> = {
                let gates = lock(&self.gates);
                let of_unit = |gate: &Gate| Some((gate.record.name.clone(), unit_of(gate)?));
                gates
                    .iter()
                    .filter(|gate| gate.away)
                    .filter_map(of_unit)
                    .collect()
            };
            for (name, unit) in away {
                unknown.extend(bus::state(&unit).ok().map(|state| (name, state)));
            }
        }
        let mut gates = lock(&self.gates);
        let mut changed = false;
        for gate in gates
            .iter_mut()
            .filter(|gate| gate.record.target.starts_with("unit:"))
        {
            let moved = unknown.iter().find(|(name, _)| *name == gate.record.name);
            let moved = moved.and_then(|(_, state)| GroupPath::parse(&state.group).ok());
            changed |= self.follow(gate, moved.filter(|group| !group.is_root()));
        }
        let gone = |gate: &Gate| {
            let found = unknown.iter().find(|(name, _)| *name == gate.record.name);
            gate.away && found.is_some_and(|(_, state)| !state.is_known())
        };
        for index in (0..gates.len())
            .rev()
            .filter(|index| gone(&gates[*index]))
            .collect::<Vec<_>>()
        {
            let gate = gates.remove(index);
            info!(
                gate = gate.record.name,
                "systemd no longer knows its unit; the gate has ended"
            );
            self.release(&gate);
            changed = true;
        }
        if changed && let Err(error) = self.publish(&gates) {
            lock(&self.alerts).insert(error.to_string());
        }
    }

    /// Says whether something is different now. `elsewhere` is where systemd has the unit, if it was asked.
    fn follow(&self, gate: &mut Gate, elsewhere: Option<GroupPath>) -> bool {
        let group = elsewhere.unwrap_or_else(|| gate.record.attachment.group().clone());
        let name = gate.record.name.clone();
        let found = match self.groups.id(&group) {
            Ok(id) => Some(id),
            Err(error) if error.is_gone() => None,
            Err(_) => return false,
        };
        match (gate.group_id, found) {
            (_, None) if gate.away => false,
            (_, None) => {
                info!(gate = name, "its unit stands still; its limits wait for it");
                self.lose(gate);
                gate.away = true;
                gate.record.notes =
                    vec!["its unit is not running; its limits wait for it".to_owned()];
                true
            }
            (Some(known), Some(id)) if known == id && !gate.away => false,
            (None, Some(id)) if !gate.away => {
                gate.group_id = Some(id);
                false
            }
            (_, Some(id)) => {
                info!(gate = name, "its unit is back in {group}");
                self.lose(gate);
                gate.away = false;
                gate.group_id = Some(id);
                if let Err(error) = self.attach(gate, Attachment::InPlace { group }) {
                    warn!("gate {name}: {error}");
                    lock(&self.alerts).insert(format!("gate {name}: {error}"));
                }
                true
            }
        }
    }

    /// The gate's group is gone, and with it what was written there.
    fn lose(&self, gate: &Gate) {
        let group = gate.record.attachment.group();
        lock(&self.control).quotas.drop(group);
        lock(&self.journal).forget(group);
    }
}
