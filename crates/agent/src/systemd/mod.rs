//! Units of systemd as targets. A unit's group belongs to systemd, which writes its own values
//! there whenever it sees a reason (a property set, a restart, the start of a neighbour after
//! `daemon-reload`). So systemd is told once what side work falls back to, the idle class and the
//! floor, and the value that moves goes to the group's file behind it: whenever systemd writes,
//! main is safe, and the agent writes its own value again. A gate follows its unit from group to
//! group.

pub mod bus;
pub mod own_unit;
mod properties;

use tidegate_api::{ApiError, ApiResult, ErrorKind};
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::target::{Target, UnitName};
use tidegate_engine::ledger::{Change, Entry};
use tidegate_terms as terms;
use tracing::warn;

use crate::errors::{about, refuse, usage};
use crate::gates::Gate;
use crate::kernel::Kernel;
use bus::{BusError, CpuValues};
use properties::{PropertiesError, PropertyRecord};

pub(crate) use properties::revert_where;

pub fn unit_of(gate: &Gate) -> Option<UnitName> {
    match Target::parse(&gate.record.target) {
        Ok(Target::Unit(unit)) => Some(unit),
        _ => None,
    }
}

/// What an absent agent means for what systemd was told: nothing while the floor stands.
fn revert_after_s(fallback: terms::Fallback) -> Option<u64> {
    match fallback {
        terms::Fallback::Floor => None,
        terms::Fallback::Restore => Some(0),
        terms::Fallback::Hold(span) => Some(span.ns() / 1_000_000_000),
    }
}

fn kind_of(error: &BusError) -> ErrorKind {
    match error {
        BusError::NoSystemd | BusError::NoBus { .. } => ErrorKind::Unsupported,
        BusError::NoUnit { .. } | BusError::NotRunning { .. } => ErrorKind::NotFound,
        BusError::Refused { .. } => ErrorKind::Denied,
    }
}

pub(crate) fn group_of_unit(kernel: &Kernel, unit: &UnitName) -> ApiResult<GroupPath> {
    let wrong = |error: BusError| {
        let is_about_unit = !matches!(error, BusError::NoSystemd | BusError::NoBus { .. });
        let refused = refuse(kind_of(&error), error);
        match is_about_unit {
            true => refused,
            false => about(&format!("unit {unit}"))(refused),
        }
    };
    let state = bus::state(unit).map_err(wrong)?;
    if !state.is_known() {
        let unit = unit.to_string();
        return Err(wrong(BusError::NoUnit { unit }));
    }
    if state.group.is_empty() {
        let (unit, active) = (unit.to_string(), state.active);
        return Err(wrong(BusError::NotRunning { unit, active }));
    }
    let group = GroupPath::parse(&state.group).map_err(usage)?;
    if !kernel.groups.exists(&group) {
        let detail = format!("unit {unit}: its group {group} is not in the cpu hierarchy");
        return Err(ApiError::new(ErrorKind::NotFound, detail).with_remedy(format!(
            "have systemd put it there: systemctl set-property --runtime {unit} CPUAccounting=yes CPUWeight=100"
        )));
    }
    Ok(group)
}

/// Tells systemd what the gate's unit falls back to. Gives what limited the unit before us. That
/// systemd cannot be told is no reason to leave main unprotected: then the gate's notes say what is
/// missing.
pub(crate) fn set_properties(
    kernel: &Kernel,
    gate: &mut Gate,
    group: &GroupPath,
    floor: Bandwidth,
) -> Option<Bandwidth> {
    let unit = unit_of(gate).filter(|_| kernel.tells_systemd)?;
    let told = try_set(kernel, &unit, gate, group, floor);
    if let Err(why) = &told {
        warn!("gate {}: {why}", gate.record.name);
        let note = format!(
            "systemd does not know its fallback, so a daemon-reload may lift the limit for a second: {why}"
        );
        gate.record.notes.push(note);
    }
    told.ok()
}

fn try_set(
    kernel: &Kernel,
    unit: &UnitName,
    gate: &Gate,
    group: &GroupPath,
    floor: Bandwidth,
) -> Result<Bandwidth, PropertiesError> {
    let name = &gate.record.name;
    let mut all = properties::load(&*kernel.fs, &kernel.run_dir);
    let ours = CpuValues::yielding(floor);
    let before = all
        .iter()
        .position(|record| record.gate == *name && record.unit == *unit);
    let was = match before {
        Some(at) => {
            all[at].ours = ours;
            all[at].was
        }
        None => {
            let was = bus::cpu_values(unit)?;
            all.push(PropertyRecord {
                gate: name.clone(),
                unit: unit.clone(),
                was,
                ours,
                had: properties::drop_ins(unit),
                revert_after_s: revert_after_s(gate.terms.fallback.value),
            });
            was
        }
    };
    let stands = kernel
        .groups
        .bandwidth(group)
        .ok()
        .filter(|_| before.is_none());
    properties::store(&*kernel.fs, &kernel.run_dir, &all)?;
    bus::set_cpu_values(unit, &ours)?;
    record_kept(kernel, unit, name, all, ours);
    Ok(stands.unwrap_or_else(|| was.bandwidth()))
}

/// What systemd made of what it was told is what is found later. That it cannot be noted is no
/// harm: it is known for ours.
fn record_kept(
    kernel: &Kernel,
    unit: &UnitName,
    gate: &str,
    mut all: Vec<PropertyRecord>,
    ours: CpuValues,
) {
    let Ok(kept) = bus::cpu_values(unit) else {
        return;
    };
    if kept == ours || !kept.comes_of(&ours) {
        return;
    }
    for record in &mut all {
        if record.gate == gate && record.unit == *unit {
            record.ours = kept;
        }
    }
    if let Err(why) = properties::store(&*kernel.fs, &kernel.run_dir, &all) {
        warn!("gate {gate}: {why}");
    }
}

pub(crate) fn revert_properties(kernel: &Kernel, gate: &Gate) -> Vec<String> {
    if unit_of(gate).is_none() {
        return Vec::new();
    }
    let name = &gate.record.name;
    let lines = revert_where(&*kernel.fs, &kernel.run_dir, |record| record.gate == *name);
    for line in &lines {
        warn!("gate {name}: {line}");
    }
    lines
}

fn is_units(group: &GroupPath) -> bool {
    let name = group.as_str();
    [".slice", ".scope", ".service"]
        .iter()
        .any(|ending| name.ends_with(ending))
}

/// Whether what stands where the journal says otherwise is what systemd writes by itself: what it
/// was told, or what stood before us where it was told nothing. A pod's slice is a unit as well,
/// though its gate is for the group.
pub(crate) fn is_written_by_systemd(kernel: &Kernel, gates: &[Gate], entry: &Entry) -> bool {
    let Some(gate) = gates.iter().find(|gate| gate.record.name == entry.gate) else {
        return false;
    };
    if unit_of(gate).is_none() && !is_units(&entry.group) {
        return false;
    }
    let all = properties::load(&*kernel.fs, &kernel.run_dir);
    let told = all.iter().find(|record| record.gate == entry.gate);
    match &entry.change {
        Change::Bandwidth { was, .. } => {
            let expected = told.map_or(*was, |record| record.ours.bandwidth());
            kernel
                .groups
                .bandwidth(&entry.group)
                .is_ok_and(|found| found == expected)
        }
        Change::Idle { was, .. } => {
            let expected = told.map_or(was.idle, |_| Some(true));
            kernel
                .groups
                .idle(&entry.group)
                .is_ok_and(|found| found == expected)
        }
        _ => false,
    }
}
