//! A gate follows its unit of systemd from group to group.

use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::target::UnitName;
use tidegate_engine::sync::lock;
use tracing::{info, warn};

use crate::control_loop::ControlLoop;
use crate::events::EventKind;
use crate::gates::{Attachment, Gate, Gates};
use crate::kernel::Kernel;
use crate::runtime::Runtime;
use crate::runtime::attach::attach;
use crate::runtime::check::OwnProcesses;
use crate::runtime::limits::release;
use crate::runtime::publish::publish;
use crate::systemd::{bus, unit_of};

/// The agent asks systemd about a unit without a group at every tenth poll of that group.
const POLLS_PER_QUERY: u32 = 10;

/// Looks where the gates' units are: a unit that was restarted has another group, one that stands
/// still has none. `polls` counts the looks.
pub(crate) fn follow_units(registry: &Gates, runtime: &Runtime, polls: &mut u32) {
    *polls = polls.wrapping_add(1);
    let mut unknown = Vec::new();
    if polls.is_multiple_of(POLLS_PER_QUERY) {
        // systemd may take its time; nothing waits for it with the gates locked.
        let away: Vec<(String, UnitName)> = {
            let gates = registry.lock();
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
    let mut gates = registry.lock();
    let mut changed = false;
    for gate in gates
        .iter_mut()
        .filter(|gate| gate.record.target.starts_with("unit:"))
    {
        let moved = unknown.iter().find(|(name, _)| *name == gate.record.name);
        let moved = moved.and_then(|(_, state)| GroupPath::parse(&state.group).ok());
        changed |= follow(runtime, gate, moved.filter(|group| !group.is_root()));
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
        let name = &gate.record.name;
        let what = "systemd no longer knows its unit";
        runtime.events.tell(EventKind::GateEnded, Some(name), what);
        release(runtime, &gate);
        changed = true;
    }
    if changed && let Err(error) = publish(runtime, &gates) {
        lock(&runtime.alerts).insert(error.to_string());
    }
}

/// Says whether a gate in place is on another group now. `elsewhere` is where systemd has the unit,
/// if it was asked.
pub(crate) fn follow(runtime: &Runtime, gate: &mut Gate, elsewhere: Option<GroupPath>) -> bool {
    let kernel = &runtime.kernel;
    if !matches!(gate.record.attachment, Attachment::InPlace { .. }) {
        return false;
    }
    let group = elsewhere.unwrap_or_else(|| gate.record.attachment.group().clone());
    let name = gate.record.name.clone();
    let found = match kernel.groups.id(&group) {
        Ok(id) => Some(id),
        Err(error) if error.is_gone() => None,
        Err(_) => return false,
    };
    match (gate.group_id, found) {
        // A gate of a group ends with it.
        (_, None) if gate.away || unit_of(gate).is_none() => false,
        (_, None) => {
            info!(gate = name, "its unit stands still; its limits wait for it");
            lose(kernel, &runtime.control_loop, gate);
            gate.away = true;
            gate.record.notes = vec!["its unit is not running; its limits wait for it".to_owned()];
            true
        }
        (Some(known), Some(id)) if known == id && !gate.away => false,
        (None, Some(id)) if !gate.away => {
            gate.group_id = Some(id);
            false
        }
        (_, Some(id)) => {
            info!(gate = name, "its group {group} is another one now");
            lose(kernel, &runtime.control_loop, gate);
            gate.away = false;
            gate.group_id = Some(id);
            let own = OwnProcesses::now(kernel, &runtime.control_loop);
            let attachment = Attachment::InPlace { group };
            if let Err(error) = attach(runtime, gate, attachment, None, &own) {
                warn!("gate {name}: {error}");
                runtime.alert_of(&name, None, format!("gate {name}: {error}"));
            }
            true
        }
    }
}

/// The gate's group is gone, and with it what was written there.
fn lose(kernel: &Kernel, control_loop: &ControlLoop, gate: &Gate) {
    let group = gate.record.attachment.group();
    control_loop.lock().quotas.drop(group);
    kernel.journal().forget(group);
}
