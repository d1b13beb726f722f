//! Putting a gate's terms on the machine and taking them off again: groups, membership, weight,
//! `cpu.idle`.
//!
//! Every change is in the journal before it is in a kernel file. Moving quotas are the loop's; here
//! a group only gets its first one, so that nothing runs unlimited until the loop's next step. What
//! is not ours is limited in `attach`.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_api::ApiResult;
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::class::set_yielding;
use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::sched::tasks::process_lives;
use tidegate_cgroup::target::HeldProcess;
use tidegate_engine::ledger::{Entry, Fallback};
use tidegate_engine::limit::tighter;
use tidegate_engine::quota_planner::{PERIOD_US, free_bandwidth};
use tidegate_terms::Class;
use tracing::{info, warn};

use crate::control_loop::ControlLoop;
use crate::errors::{internal, not_recorded, of_group, usage};
use crate::events::EventKind;
use crate::gates::{Attachment, Gate, demand};
use crate::kernel::{Kernel, NoGroup};
use crate::process::lease::monotonic_ns;
use crate::runtime::Runtime;
use crate::runtime::check::check_feasible;
use crate::runtime::confinement::{Place, check_unrestricted};
use crate::runtime::cpuset_controller::gather_cpuset;
use crate::runtime::mechanisms::caps::soft_group;
use crate::runtime::mechanisms::{enforce, withdraw};
use crate::runtime::scheduler_plan::{mark_moved, unmark};
use crate::systemd::revert_properties;

pub(crate) fn enter(
    runtime: &Runtime,
    gate: &mut Gate,
    held: &HeldProcess,
    place: &Place,
) -> ApiResult<()> {
    let kernel = &runtime.kernel;
    let pid = held.process.pid;
    let group = match place {
        Place::Root => make_in_root(runtime, gate)?,
        Place::Below(own) => match make_below(runtime, gate, own) {
            Ok(group) => group,
            Err(NoGroup::NotPossible(why)) => {
                check_unrestricted(kernel, pid, own, &why)?;
                make_in_root(runtime, gate)?
            }
            Err(NoGroup::Failed(error)) => return Err(error),
        },
    };
    gate.record.attachment = Attachment::Owned {
        group: group.clone(),
    };
    let possible = check_feasible(runtime, gate);
    let placed = possible
        .and_then(|()| write_weight(kernel, gate))
        .and_then(|()| {
            let placed = kernel.groups.place(&group, pid);
            let placement = placed.map_err(of_group)?;
            kernel.check_moved(&placement, held)?;
            gather_cpuset(runtime);
            enforce(runtime, gate).inspect_err(|_| {
                withdraw(runtime, gate);
                if let Err(error) = kernel.groups.place_back(&placement) {
                    warn!("process {pid}: {error}");
                }
            })
        });
    if placed.is_err() {
        kernel.remove_group(&group);
    }
    placed
}

/// A group of its own in our root for its class, or where a soft cap lies.
fn make_in_root(runtime: &Runtime, gate: &Gate) -> ApiResult<GroupPath> {
    let kernel = &runtime.kernel;
    let (root, name) = match soft_group(kernel, gate) {
        Some(name) => (kernel.groups.base().clone(), name),
        None if gate.class() == Class::Side => (kernel.side_root(), gate.record.name.clone()),
        None => (kernel.main_root(), gate.record.name.clone()),
    };
    let group = root.join(&name).map_err(usage)?;
    if gate.class() == Class::Side {
        ensure_side_root(runtime, Some(gate))?;
    } else if root == kernel.main_root() {
        kernel.ensure_made(&root, "")?;
    }
    kernel.ensure_made(&group, &gate.record.name)?;
    Ok(group)
}

/// A group of its own below the one that the command is in, limited before the command enters.
fn make_below(runtime: &Runtime, gate: &mut Gate, own: &GroupPath) -> Result<GroupPath, NoGroup> {
    let kernel = &runtime.kernel;
    let name = gate.record.name.clone();
    let group = own.join(&kernel.name_below_others(&name)).map_err(usage)?;
    kernel.ensure_made_below(own, &group, &name)?;
    let own_limit = gate.own_limit();
    let floor = tighter(runtime.control_loop.floor_now(), own_limit);
    let (quota, is_asked_anew) = first_quota(runtime, gate);
    let first = (tighter(quota, own_limit), is_asked_anew);
    if let Err(error) = limit_group(runtime, &group, &name, floor, first) {
        kernel.remove_group(&group);
        return Err(error.into());
    }
    gate.record.notes.push(format!(
        "it stays below {own}, with whatever limits that has, and has a quota of its own there"
    ));
    Ok(group)
}

/// The side root: made, idle, and before a process of `gate` is in it, with its first quota; for
/// what an earlier agent left, that is the tolerance.
pub(crate) fn ensure_side_root(runtime: &Runtime, gate: Option<&Gate>) -> ApiResult<()> {
    let root = runtime.kernel.side_root();
    runtime.kernel.ensure_made(&root, "")?;
    let floor = runtime.control_loop.floor_now();
    let first = gate.map_or((floor, false), |gate| first_quota(runtime, gate));
    limit_group(runtime, &root, "", floor, first)
}

/// The quota of side work until the loop's next step: what this gate or another leaves it of what
/// is idle, the tolerance under an objective, or no quota where neither asks for idle. The flag says
/// that this gate is the first to ask for idle, so that the loop's plan does not count yet.
fn first_quota(runtime: &Runtime, gate: &Gate) -> (Bandwidth, bool) {
    let of_gate = demand(std::iter::once(gate), &runtime.settings);
    let control = runtime.control();
    let keeps_idle = control.may_keep_idle();
    let has_objective = of_gate.objective.is_some() || control.demand().objective.is_some();
    let headroom_ppm = of_gate.headroom_ppm.max(control.headroom_ppm());
    drop(control);
    let quota = if has_objective || runtime.sched_ext.is_wanted() {
        runtime.control_loop.floor_now()
    } else if headroom_ppm > 0 {
        runtime.control_loop.first(headroom_ppm)
    } else {
        free_bandwidth(PERIOD_US)
    };
    let asks_for_idle = has_objective || headroom_ppm > 0;
    (quota, !keeps_idle && asks_for_idle)
}

/// A group of ours that carries a moving quota: in the idle class, and with this quota until the
/// loop's next step ([`first_quota`]). The guardian's is `floor`.
pub(crate) fn limit_group(
    runtime: &Runtime,
    group: &GroupPath,
    gate: &str,
    floor: Bandwidth,
    (first, is_asked_anew): (Bandwidth, bool),
) -> ApiResult<()> {
    let kernel = &runtime.kernel;
    let unlimited = kernel.groups.bandwidth(group).map_err(of_group)?;
    make_yield(kernel, group, gate, Fallback::Stay)?;
    let fallback = Fallback::Floor { bandwidth: floor };
    runtime
        .journal()
        .record_limit(group, gate, unlimited, fallback)
        .map_err(internal)?;
    let mut control = runtime.control();
    let is_due = is_asked_anew || !control.quotas.is_planned(group);
    if is_due && unlimited.quota_us.is_none() && unlimited != first {
        write_floor(runtime, group, unlimited, first)?;
        control.quotas.stands(group, first);
    }
    Ok(())
}

/// `cpu.idle` where the kernel has it, else the least weight.
pub(crate) fn make_yield(
    kernel: &Kernel,
    group: &GroupPath,
    gate: &str,
    fallback: Fallback,
) -> ApiResult<()> {
    let was = kernel.groups.class(group).map_err(of_group)?;
    // Yielding already; or out of the idle class by the loop's own doing, which ends it, too.
    if was.idle == Some(true) || kernel.journal().is_relieved(group) {
        return Ok(());
    }
    kernel
        .journal()
        .record_idle_class(group, gate, was, fallback)
        .map_err(internal)?;
    set_yielding(&kernel.groups, group, true).map_err(of_group)
}

pub(crate) fn write_floor(
    runtime: &Runtime,
    group: &GroupPath,
    from: Bandwidth,
    floor: Bandwidth,
) -> ApiResult<()> {
    mark_moved(runtime, group);
    runtime
        .journal()
        .write_quota(group, &from, &floor)
        .map_err(not_recorded)
}

/// The group that has the gate's weight among its siblings: one of ours. Others' groups keep
/// theirs, and so does one of ours in another's, which is in the idle class itself.
fn weighed_group<'g>(kernel: &Kernel, gate: &'g Gate) -> Option<&'g GroupPath> {
    let group = match &gate.record.attachment {
        Attachment::Owned { group } => group,
        Attachment::Moved { placement, .. } => &placement.group,
        Attachment::InPlace { .. } | Attachment::Observed { .. } => return None,
    };
    (!kernel.is_below_others(group)).then_some(group)
}

/// Says what a weight does where no group has it.
pub(crate) fn note_weight(kernel: &Kernel, gate: &mut Gate) {
    const WEIGHT: &str = "weight: its group keeps its own; ";
    gate.record.notes.retain(|note| !note.starts_with(WEIGHT));
    if gate.terms.weight.is_default() || weighed_group(kernel, gate).is_some() {
        return;
    }
    let effect = match gate.class() {
        Class::Side => "this one divides the allowance of side work",
        Class::Main | Class::Neutral => "this one has no effect",
    };
    gate.record.notes.push(format!("{WEIGHT}{effect}"));
}

pub(crate) fn write_weight(kernel: &Kernel, gate: &Gate) -> ApiResult<()> {
    let Some(group) = weighed_group(kernel, gate) else {
        return Ok(());
    };
    if gate.terms.weight.is_default()
        && kernel
            .groups
            .weight(group)
            .is_ok_and(|weight| weight == 100)
    {
        return Ok(());
    }
    let mut journal = kernel.journal();
    let capped = journal
        .record_weight(group, gate.terms.cpu_weight())
        .map_err(not_recorded)?;
    // The kernel refuses weights in the background; the loop writes it with the end of that.
    if capped
        && kernel
            .groups
            .idle(group)
            .is_ok_and(|idle| idle == Some(true))
    {
        return Ok(());
    }
    kernel
        .groups
        .set_weight(group, gate.terms.cpu_weight())
        .map_err(of_group)
}

/// Takes off all that a gate put on, as far as it is still ours; says what was not put back.
pub(crate) fn release(runtime: &Runtime, gate: &Gate) -> Vec<String> {
    await_guardian(runtime);
    let mut left = withdraw(runtime, gate);
    left.extend(release_place(runtime, gate));
    left
}

fn release_place(runtime: &Runtime, gate: &Gate) -> Vec<String> {
    let kernel = &runtime.kernel;
    // The loop must not write behind the restore.
    runtime
        .control()
        .quotas
        .drop(gate.record.attachment.group());
    match &gate.record.attachment {
        Attachment::Owned { group } => {
            kernel.remove_group(group);
            Vec::new()
        }
        Attachment::Observed { .. } => Vec::new(),
        Attachment::InPlace { .. } | Attachment::Moved { .. } => {
            unmark(runtime, gate.record.attachment.group());
            let mut left = restore(runtime, &gate.record.name);
            // Last: systemd then writes what it would have without us.
            left.extend(revert_unit(runtime, gate));
            left
        }
    }
}

pub(crate) fn revert_unit(runtime: &Runtime, gate: &Gate) -> Vec<String> {
    let lines = revert_properties(&runtime.kernel, gate);
    let name = &gate.record.name;
    for line in &lines {
        runtime.alert_of(name, None, format!("gate {name}: {line}"));
    }
    lines
}

pub(crate) fn remove_unused_roots(kernel: &Kernel, control_loop: &ControlLoop, gates: &[Gate]) {
    for root in [kernel.side_root(), kernel.main_root()] {
        let used = gates
            .iter()
            .any(|gate| gate.record.attachment.group().is_within(&root));
        if !used && kernel.groups.exists(&root) {
            control_loop.lock().quotas.drop(&root);
            kernel.remove_group(&root);
        }
    }
}

/// Puts back all that was written for a gate, and says what could not be: another writer's value,
/// or a refusal.
///
/// Moving a process can take seconds on a full machine, and the loop waits for the journal: so
/// processes go back first, without it.
pub(crate) fn restore(runtime: &Runtime, gate: &str) -> Vec<String> {
    await_guardian(runtime);
    let entries: Vec<Entry> = runtime.journal().of_gate(gate).cloned().collect();
    let left = put_back(runtime, gate);
    // A guardian that found this process frozen during the restore may still be writing.
    if await_guardian(runtime) {
        runtime.journal().undo_late_fallback(&entries);
    }
    left
}

/// Waits while the guardian writes the fallback, as it does until it sees that this process goes
/// on: what is put back in between, it would write over. Says whether it did.
fn await_guardian(runtime: &Runtime) -> bool {
    let lease = &runtime.control_loop.lease;
    let writes = || lease.is_falling_back(monotonic_ns());
    let did = writes();
    while writes() {
        std::thread::sleep(Duration::from_millis(2));
    }
    did
}

fn put_back(runtime: &Runtime, gate: &str) -> Vec<String> {
    let kernel = &runtime.kernel;
    let moves = runtime.journal().moves_of(gate);
    // The first one's group is removed with it.
    for (placement, start_ticks) in moves.into_iter().rev() {
        if process_lives(&*kernel.fs, placement.pid, start_ticks)
            && let Err(error) = kernel.groups.place_back(&placement)
        {
            warn!("gate {gate}: {error}");
        }
    }
    // v1's cpuset hierarchy knows nothing of that.
    gather_cpuset(runtime);
    let mut left = Vec::new();
    for (line, is_back) in runtime.journal().restore_gate(gate) {
        info!(gate, "{line}");
        if !is_back {
            runtime.alert_of(gate, None, format!("gate {gate}: {line}"));
            left.push(line);
        }
    }
    left
}

/// Releases gates that have ended, newest first. The groups that are gone leave the journal at
/// once: a file for each would keep the rest waiting where thousands end together.
pub(crate) fn release_all(runtime: &Runtime, ended: &[Gate]) {
    let mut removed = BTreeSet::new();
    for gate in ended.iter().rev() {
        // Each may take a while; the guardian is not to think that we hang.
        runtime.control_loop.lease.beat(monotonic_ns());
        let Attachment::Owned { group } = &gate.record.attachment else {
            release(runtime, gate);
            continue;
        };
        withdraw(runtime, gate);
        // The loop must not write behind the removal.
        runtime.control().quotas.drop(group);
        match runtime.kernel.remove_from_tree(group) {
            Ok(()) => {
                removed.insert(group.clone());
            }
            // It stays in the journal for the next try.
            Err(error) => warn!("{error}"),
        }
    }
    runtime.journal().forget_all(&removed);
}

/// Ends the gates of which `has_ended` is true. Returns whether there was one.
pub(crate) fn end_gates(
    runtime: &Runtime,
    gates: &mut Vec<Gate>,
    has_ended: impl Fn(&Gate) -> bool,
) -> bool {
    let ended: Vec<Gate> = gates.extract_if(.., |gate| has_ended(gate)).collect();
    for gate in &ended {
        let name = Some(gate.record.name.as_str());
        let events = &runtime.events;
        events.tell(EventKind::GateEnded, name, "no process is left in it");
    }
    release_all(runtime, &ended);
    !ended.is_empty()
}
