//! Taking up what an earlier agent left: gates that still have work in them, values that no gate
//! needs any more.

use tidegate_cgroup::KfsError;
use tidegate_cgroup::group::GroupPath;
use tidegate_engine::ledger::{Change, own_groups};
use tidegate_engine::sync::lock;
use tidegate_terms::{RawTerms, Source};
use tracing::{info, warn};

use crate::events::EventKind;
use crate::gates::stored::{self, StoredGates};
use crate::gates::{Attachment, Gate, Gates, Record};
use crate::kernel::Kernel;
use crate::process::lease::monotonic_ns;
use crate::runtime::Runtime;
use crate::runtime::attach::renew;
use crate::runtime::limits::{ensure_side_root, remove_unused_roots};
use crate::runtime::measure::has_ended;
use crate::runtime::publish::publish;

/// All gates, after the guardian wrote the fallback.
pub(crate) fn renew_all(registry: &Gates, runtime: &Runtime) {
    let mut gates = registry.lock();
    for line in runtime.journal().yield_again() {
        info!("{line}");
    }
    renew_each(runtime, &mut gates);
    if let Err(error) = publish(runtime, &gates) {
        lock(&runtime.alerts).insert(error.to_string());
    }
}

fn renew_each(runtime: &Runtime, gates: &mut [Gate]) {
    for gate in gates {
        if let Err(error) = renew(runtime, gate) {
            warn!("gate {}: {error}", gate.record.name);
            lock(&runtime.alerts).insert(error.to_string());
        }
    }
}

/// Adopts gates, restores the rest, and tells the loop. Safe to do again at any time. Changes
/// nothing where the records of the gates are there and cannot be read: an agent without them would
/// lift their limits.
pub(crate) fn take_up(registry: &Gates, runtime: &Runtime) -> Result<(), KfsError> {
    let kernel = &runtime.kernel;
    let mut gates = registry.lock();
    for record in stored_gates(runtime)? {
        let name = record.name.clone();
        let (gate, left_out) = stored::gate_of(record, &registry.config());
        for why in left_out {
            lock(&runtime.alerts).insert(format!(
                "gate {name}: {why}; another version set it, and this one does not enforce it"
            ));
        }
        match has_ended(runtime, &gate) {
            false => gates.push(gate),
            true => info!(gate = name, "ended while no agent was there"),
        }
    }
    let unread = runtime.unread_names();
    take_up_nameless(registry, kernel, &mut gates);
    let root = kernel.side_root();
    let main_root = kernel.main_root();
    // A gate that nothing limits by its record needs no value of ours: its class was being changed
    // when that agent died.
    let needs = |gate: &Gate, change: &Change| {
        let own = matches!(gate.record.attachment, Attachment::Owned { .. });
        let yields = matches!(change, Change::Idle { .. } | Change::Weight { .. });
        own || gate.is_limited() || (gate.needs_group() && !yields)
    };
    let report = runtime.journal().restore_where(|entry| {
        let shared = entry.group == root || entry.group == main_root;
        let gate = gates.iter().find(|gate| gate.record.name == entry.gate);
        // Turns ended with the agent that gave them.
        let is_needed = gate.is_some_and(|gate| needs(gate, &entry.change));
        entry.change.is_boost() || !shared && !is_needed && !unread.contains(&entry.gate)
    });
    for line in report {
        info!("left by an earlier agent: {line}");
    }
    for line in runtime.journal().yield_again() {
        info!("left by an earlier agent: {line}");
    }
    renew_each(runtime, &mut gates);
    remove_unused_roots(kernel, &runtime.control_loop, &gates);
    let has_side = gates
        .iter()
        .any(|gate| gate.record.attachment.group().is_within(&root));
    let result = if has_side {
        ensure_side_root(runtime, None)
    } else {
        Ok(())
    };
    if let Err(error) = result.and_then(|()| publish(runtime, &gates)) {
        warn!("{error}");
        lock(&runtime.alerts).insert(error.to_string());
    }
    if !gates.is_empty() {
        let what = format!("took up {} gates", gates.len());
        runtime.events.tell(EventKind::AgentAdopted, None, what);
    }
    Ok(())
}

fn stored_gates(runtime: &Runtime) -> Result<Vec<Record>, KfsError> {
    let kernel = &runtime.kernel;
    let path = kernel.run_dir.gates();
    let text = match kernel.fs.read(&path) {
        Ok(text) => text,
        Err(error) if error.is_gone() => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let stored = stored::read(&text).unwrap_or_else(|why| {
        let message = format!(
            "{}: {why}; gates are found by their groups' names instead",
            path.display()
        );
        warn!("{message}");
        lock(&runtime.alerts).insert(message);
        StoredGates::default()
    });
    for record in &stored.unread {
        let message = format!(
            "gate {}: another version wrote it down ({}): its limits stay as they are, and it is kept for that version",
            record.name(),
            record.why
        );
        warn!("{message}");
        lock(&runtime.alerts).insert(message);
    }
    *lock(&runtime.unread_records) = stored.unread;
    Ok(stored.records)
}

/// Groups of ours with work in them that no record tells of: their gates' terms are lost, their
/// class is not.
fn take_up_nameless(registry: &Gates, kernel: &Kernel, gates: &mut Vec<Gate>) {
    let own = own_groups(&kernel.groups, kernel.run_dir.prefix()).unwrap_or_default();
    let roots = [(kernel.side_root(), "side"), (kernel.main_root(), "main")];
    for group in own {
        let in_root = roots
            .iter()
            .find(|(root, _)| group.parent().as_ref() == Some(root));
        let (name, class) = match in_root {
            Some((_, class)) => (group.name(), class),
            // Below another's group, side work of `run` is in the idle class; what `set` moved
            // there is in the journal.
            None if kernel.is_below_others(&group)
                && kernel
                    .groups
                    .idle(&group)
                    .is_ok_and(|idle| idle == Some(true)) =>
            {
                (
                    kernel.gate_below_others(&group).unwrap_or_default(),
                    &"side",
                )
            }
            None => continue,
        };
        if gates
            .iter()
            .any(|gate| gate.record.attachment.group() == &group)
        {
            continue;
        }
        if kernel.journal().is_moved(&group) {
            // Its `set` was never answered: the process goes back to where it was.
            continue;
        }
        let populated = kernel.groups.populated(&group);
        if !populated.unwrap_or_else(|error| !error.is_gone()) {
            kernel.remove_group(&group);
            continue;
        }
        match Gate::new(nameless(&group, name, class), &registry.config()) {
            Ok(gate) => gates.push(gate),
            Err(error) => warn!("{error}"),
        }
    }
}

fn nameless(group: &GroupPath, name: &str, class: &str) -> Record {
    let mut raw = RawTerms::default();
    raw.insert("class", class, Source::Default);
    let attachment = Attachment::Owned {
        group: group.clone(),
    };
    Record {
        made_ns: monotonic_ns(),
        notes: vec!["found by its group's name: the record of its terms was lost".to_owned()],
        ..Record::new(name.to_owned(), "run", raw, attachment)
    }
}
