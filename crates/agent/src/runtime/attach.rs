//! Limiting processes and groups that were there before us, and that get back what they had.

use std::collections::BTreeSet;

use tidegate_api::{ApiError, ApiResult, ErrorKind};
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::discover::CgroupVersion;
use tidegate_cgroup::group::{GroupPath, Placement};
use tidegate_cgroup::sched::tasks::{TaskId, descendants};
use tidegate_cgroup::target::{HeldProcess, ProcessRef};
use tidegate_engine::apply::fallback_of;
use tidegate_engine::limit::tighter;
use tracing::warn;

use crate::control_loop::ControlLoop;
use crate::errors::{internal, not_found, of_group, usage};
use crate::gates::{Attachment, Gate};
use crate::kernel::Kernel;
use crate::runtime::Runtime;
use crate::runtime::check::OwnProcesses;
use crate::runtime::confinement::left_limit;
use crate::runtime::limits::{
    ensure_side_root, limit_group, make_yield, release, restore, revert_unit, write_floor,
    write_weight,
};
use crate::runtime::mechanisms::caps::soft_group;
use crate::runtime::mechanisms::subgroups::check_beside;
use crate::runtime::mechanisms::{enforce, withdraw};
use crate::runtime::scheduler_plan::unmark;
use crate::systemd::{set_properties, unit_of};

/// A family that forks faster than it is walked is left so after this many walks.
const FAMILY_ROUNDS_MAX: u32 = 16;

/// Limits a process or group that was there before, as its class asks; `held` since the caller's
/// rights were looked at.
pub(crate) fn attach(
    runtime: &Runtime,
    gate: &mut Gate,
    attachment: Attachment,
    held: Option<HeldProcess>,
    own: &OwnProcesses,
) -> ApiResult<()> {
    let kernel = &runtime.kernel;
    if gate.needs_group() {
        own.check_not_in(&gate.record.target, &attachment)?;
        check_beside(gate, &attachment)?;
    }
    gate.record.notes.clear();
    gate.record.attachment = attachment;
    if let Attachment::InPlace { group } = &gate.record.attachment {
        gate.group_id = kernel.groups.id(group).ok();
    }
    let name = gate.record.name.clone();
    let before = gate.record.attachment.clone();
    let limited = if gate.needs_group() {
        limit(runtime, gate, held)
    } else {
        Ok(())
    };
    let limited = limited.and_then(|()| enforce(runtime, gate));
    if let Attachment::Observed { group, .. } = &gate.record.attachment
        && gate.terms.objective.value != tidegate_terms::Objective::None
    {
        let note = format!(
            "the objective counts the waits of all tasks in {group}; `tidegate run --main` starts a \
             command in a group of its own"
        );
        gate.record.notes.push(note);
    }
    if limited.is_err() {
        withdraw(runtime, gate);
        if !matches!(gate.record.attachment, Attachment::Observed { .. }) {
            unmark(runtime, gate.record.attachment.group());
        }
        // Nothing half done: what is in the journal for it is put back, in the opposite order.
        restore(runtime, &name);
        revert_unit(runtime, gate);
        gate.record.attachment = before;
    }
    limited
}

fn limit(runtime: &Runtime, gate: &mut Gate, held: Option<HeldProcess>) -> ApiResult<()> {
    let fs = &*runtime.kernel.fs;
    match gate.record.attachment.clone() {
        Attachment::Observed {
            pid, start_ticks, ..
        } => {
            let hold = match gate.record.is_of_thread() {
                true => HeldProcess::hold_thread,
                false => HeldProcess::hold,
            };
            let held = held.map_or_else(|| hold(fs, pid), Ok);
            let held = held.map_err(not_found)?;
            if held.process.start_ticks != start_ticks {
                let detail = format!("process {pid}: it has exited");
                return Err(ApiError::new(ErrorKind::NotFound, detail));
            }
            move_in_place(runtime, gate, &held)
        }
        // What it asks for itself is written by `enforce`.
        Attachment::InPlace { .. } if !gate.is_limited() => Ok(()),
        Attachment::InPlace { group } => {
            let floor = floor_of(&runtime.control_loop, gate);
            let was = set_properties(&runtime.kernel, gate, &group, floor);
            limit_foreign(runtime, &group, gate, was)?;
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

/// Moves a process that ran already: side work into the side root on v1; everything else into a
/// child group in place.
fn move_in_place(runtime: &Runtime, gate: &mut Gate, held: &HeldProcess) -> ApiResult<()> {
    let kernel = &runtime.kernel;
    let ProcessRef {
        pid, start_ticks, ..
    } = held.process;
    let name = gate.record.name.clone();
    let in_place = kernel.name_below_others(&name);
    let from = kernel.groups.group_of(pid).map_err(of_group)?;
    let from = from.unwrap_or_else(GroupPath::root);
    let (v1_parent, v1_name) = if gate.is_limited() {
        ensure_side_root(runtime, Some(gate))?;
        (kernel.side_root(), name.clone())
    } else {
        place_of_soft_cap(runtime, gate, pid, from.clone())?
    };
    let in_root = v1_parent.join(&v1_name).map_err(usage)?;
    let is_of_thread = gate.record.is_of_thread();
    let plan = match is_of_thread {
        true => kernel.groups.plan_thread_in_place(pid, &in_place, &in_root),
        false => kernel.groups.plan_in_place(pid, &in_place, &in_root),
    };
    let plan = plan.map_err(of_group)?;
    // What is in the side root stays there with the floor; only who is to be restored is moved back
    // without an agent.
    runtime
        .journal()
        .record_move(&name, plan.clone(), start_ticks, gate.own_fallback())
        .map_err(internal)?;
    kernel.groups.make_planned(&plan).map_err(of_group)?;
    let at = plan.group.clone();
    let stays = gate.is_limited() && !at.is_within(&kernel.side_root());
    if stays {
        // Empty as yet: no moment in it is without a limit.
        limit_foreign(runtime, &at, gate, None)?;
    }
    let placed = match is_of_thread {
        true => kernel.groups.place_task(&at, pid).map(drop),
        false => kernel.groups.place(&at, pid).map(drop),
    };
    placed.map_err(of_group)?;
    kernel.check_moved(&plan, held)?;
    let family = if gate.record.only || is_of_thread {
        Family::default()
    } else {
        move_descendants(runtime, gate, &plan, start_ticks)
    };
    gate.record.attachment = Attachment::Moved {
        placement: plan,
        start_ticks,
    };
    write_weight(kernel, gate)?;
    gate.record.notes.extend(family.notes());
    gate.record.notes.extend(left_limit(kernel, &from, &at));
    if !gate.is_limited() {
        gate.record
            .notes
            .push(format!("it was moved into a group of its own: {at}"));
    } else if stays {
        gate.record.notes.push(
            "it stays in its unit (memory accounting, KillMode): it has a quota of its own in a child group there"
                .to_owned(),
        );
    }
    Ok(())
}

/// The parent and the name of the new group for a process that is not side work (v1). The parent is
/// the present group of the process, so that its limits still apply. A group with a soft cap yields
/// to its siblings only, so its parent is the top group, unless a quota limits the process now. On
/// v2 a process stays in its group.
fn place_of_soft_cap(
    runtime: &Runtime,
    gate: &Gate,
    pid: i32,
    at: GroupPath,
) -> ApiResult<(GroupPath, String)> {
    let kernel = &runtime.kernel;
    let below = kernel.name_below_others(&gate.record.name);
    let Some(at_top) = soft_group(kernel, gate).filter(|_| !runtime.sched_ext.is_wanted()) else {
        return Ok((at, below));
    };
    if kernel.groups.version() == CgroupVersion::V2 && !at.is_root() {
        let detail = format!(
            "cap_soft: process {pid} stays in {at}, as cgroup v2 has it, and would yield to what else is there only"
        );
        let remedy = "name its unit or group, or start it with `tidegate run --cap-soft`";
        return Err(ApiError::new(ErrorKind::Unsupported, detail).with_remedy(remedy));
    }
    let mut above = std::iter::successors(Some(at.clone()), GroupPath::parent);
    let has_quota = above.any(|group| {
        let bandwidth = kernel.groups.bandwidth(&group);
        !group.is_root() && bandwidth.is_ok_and(|bandwidth| bandwidth.quota_us.is_some())
    });
    Ok(match has_quota {
        true => (at, below),
        false => (kernel.groups.base().clone(), at_top),
    })
}

/// The processes that a process had started before it was moved.
#[derive(Default)]
struct Family {
    moved: usize,
    /// Those of other users, in other gates or groups, or refused by the kernel.
    left: usize,
}

impl Family {
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.moved > 0 {
            notes.push(format!(
                "processes that it had started: {} in the gate as well (--only leaves them out)",
                self.moved
            ));
        }
        if self.left > 0 {
            notes.push(format!(
                "processes that it had started: {} not in the gate, as they are in another gate or group, or another user's",
                self.left
            ));
        }
        notes
    }
}

/// Moves what the process had started into its group, until none is found outside: they may fork
/// meanwhile, and what is forked inside stays inside.
fn move_descendants(runtime: &Runtime, gate: &Gate, plan: &Placement, start_ticks: u64) -> Family {
    let kernel = &runtime.kernel;
    let fs = &*kernel.fs;
    let parent = TaskId {
        tid: plan.pid,
        start_ticks,
    };
    let home = plan.from.first().and_then(|from| from.group.as_ref());
    let mut family = Family::default();
    let mut seen = BTreeSet::new();
    for _ in 0..FAMILY_ROUNDS_MAX {
        let found = descendants(fs, parent, 0);
        let fresh: Vec<TaskId> = found
            .into_iter()
            .filter(|task| seen.insert(*task))
            .collect();
        if fresh.is_empty() {
            break;
        }
        for child in fresh {
            let at = kernel.groups.group_of(child.tid).ok().flatten();
            if at.as_ref().is_some_and(|at| kernel.is_in(at, &plan.group)) {
                continue;
            }
            // Another gate's, or a group that the child was given: v2 has no way out of it either.
            let moved = match at.is_some() && at.as_ref() != home {
                true => Some(false),
                false => move_descendant(runtime, gate, plan, child),
            };
            match moved {
                Some(true) => family.moved += 1,
                Some(false) => family.left += 1,
                // It has exited.
                None => {}
            }
        }
    }
    family
}

fn move_descendant(
    runtime: &Runtime,
    gate: &Gate,
    plan: &Placement,
    child: TaskId,
) -> Option<bool> {
    let kernel = &runtime.kernel;
    let held = HeldProcess::hold(&*kernel.fs, child.tid).ok()?;
    let is_owners = gate.record.uid == 0 || held.process.uid == gate.record.uid;
    let of_child = kernel
        .groups
        .plan_in_place(child.tid, plan.group.name(), &plan.group);
    let Some(of_child) = of_child
        .ok()
        .filter(|one| is_owners && one.group == plan.group)
    else {
        return Some(false);
    };
    let name = &gate.record.name;
    let recorded = runtime.journal().record_move(
        name,
        of_child.clone(),
        held.process.start_ticks,
        gate.own_fallback(),
    );
    let placed = recorded.is_ok() && kernel.groups.place(&plan.group, child.tid).is_ok();
    Some(placed && kernel.check_moved(&of_child, &held).is_ok())
}

/// Puts on again what a fallback took off: an agent that is in control again goes on with a gate's
/// terms.
pub(crate) fn renew(runtime: &Runtime, gate: &mut Gate) -> ApiResult<()> {
    renew_place(runtime, gate)?;
    enforce(runtime, gate)
}

fn renew_place(runtime: &Runtime, gate: &mut Gate) -> ApiResult<()> {
    let kernel = &runtime.kernel;
    let name = gate.record.name.clone();
    match gate.record.attachment.clone() {
        Attachment::InPlace { group }
            if unit_of(gate).is_some() && !kernel.groups.exists(&group) =>
        {
            gate.away = true;
        }
        Attachment::Owned { group } if kernel.is_below_others(&group) => {
            let floor = floor_of(&runtime.control_loop, gate);
            limit_group(runtime, &group, &name, floor, (floor, false))?;
        }
        Attachment::InPlace { group } if gate.is_limited() => {
            let idle = kernel.groups.idle(&group).map_err(of_group)? != Some(false);
            // A unit that was restarted has what systemd was told, and is not in the journal yet.
            if !idle || !runtime.journal().limits(&group) {
                let was =
                    set_properties(kernel, gate, &group, floor_of(&runtime.control_loop, gate));
                limit_foreign(runtime, &group, gate, was)?;
            }
        }
        Attachment::Moved {
            placement,
            start_ticks,
        } => {
            // Gone, or where it was put: nothing to do.
            let now = ProcessRef::look_up(&*kernel.fs, placement.pid);
            let is_same = now.is_ok_and(|now| now.start_ticks == start_ticks);
            let at = kernel.groups.group_of(placement.pid).ok().flatten();
            if let Some(group) = at.filter(|at| is_same && !kernel.is_in(at, &placement.group)) {
                // What is left of the old placement is settled first.
                restore(runtime, &name);
                let attachment = Attachment::Observed {
                    pid: placement.pid,
                    start_ticks,
                    group,
                };
                let own = OwnProcesses::now(kernel, &runtime.control_loop);
                return attach(runtime, gate, attachment, None, &own);
            }
        }
        _ => {}
    }
    Ok(())
}

fn floor_of(control_loop: &ControlLoop, gate: &Gate) -> Bandwidth {
    tighter(control_loop.floor_now(), gate.own_limit())
}

/// Saves what stands on a group that is not ours (or `was`, where systemd was just told something
/// else), then makes it yield and gives it the floor.
fn limit_foreign(
    runtime: &Runtime,
    group: &GroupPath,
    gate: &Gate,
    was: Option<Bandwidth>,
) -> ApiResult<()> {
    let kernel = &runtime.kernel;
    let bandwidth = kernel.groups.bandwidth(group).map_err(of_group)?;
    let floor = floor_of(&runtime.control_loop, gate);
    let fallback = fallback_of(gate.terms.fallback.value, floor);
    // Idle is no danger to main: with the floor it stays, else it goes the way of the quota.
    let idle_fallback = gate.own_fallback();
    let gate = gate.record.name.as_str();
    make_yield(kernel, group, gate, idle_fallback)?;
    runtime
        .journal()
        .record_limit(group, gate, was.unwrap_or(bandwidth), fallback)
        .map_err(internal)?;
    write_floor(runtime, group, bandwidth, floor)
}

/// Takes the gate off the machine and puts it on as it is to be, which may be in another place.
pub(crate) fn move_to(runtime: &Runtime, gate: &mut Gate, changed: &mut Gate) -> ApiResult<()> {
    release(runtime, gate);
    let attachment = attachment_after_release(&runtime.kernel, gate);
    let own = OwnProcesses::now(&runtime.kernel, &runtime.control_loop);
    let error = match attach(runtime, changed, attachment.clone(), None, &own) {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    // As it was, as far as that can be had.
    if let Err(error) = attach(runtime, gate, attachment, None, &own) {
        warn!("gate {}: {error}", gate.record.name);
    }
    Err(error)
}

/// Makes the machine agree with a gate's changed terms, or leaves gate and machine as they were.
pub(crate) fn agree(runtime: &Runtime, gate: &mut Gate, mut changed: Gate) -> ApiResult<()> {
    let kernel = &runtime.kernel;
    if changed.needs_group() && !gate.needs_group() {
        OwnProcesses::now(kernel, &runtime.control_loop)
            .check_not_in(&gate.record.target, &gate.record.attachment)?;
    }
    let in_own = matches!(gate.record.attachment, Attachment::Moved { .. });
    let is_process = in_own || matches!(gate.record.attachment, Attachment::Observed { .. });
    if is_process && changed.needs_group() != in_own {
        move_to(runtime, gate, &mut changed)?;
        *gate = changed;
        return Ok(());
    }
    if changed.terms.cpu_weight() != gate.terms.cpu_weight() {
        write_weight(kernel, &changed)?;
    }
    if let Err(error) = enforce(runtime, &mut changed) {
        if let Err(error) = write_weight(kernel, gate).and_then(|()| enforce(runtime, gate)) {
            warn!("gate {}: {error}", gate.record.name);
        }
        return Err(error);
    }
    gate.record = changed.record;
    gate.terms = changed.terms;
    gate.hint = changed.hint;
    gate.burst_room_us = changed.burst_room_us;
    Ok(())
}

/// Where a gate's work sits once nothing of ours acts on it: a process that was moved is back where
/// it was.
fn attachment_after_release(kernel: &Kernel, gate: &Gate) -> Attachment {
    match &gate.record.attachment {
        Attachment::Moved {
            placement,
            start_ticks,
        } => Attachment::Observed {
            pid: placement.pid,
            start_ticks: *start_ticks,
            group: kernel
                .groups
                .group_of(placement.pid)
                .ok()
                .flatten()
                .unwrap_or_else(GroupPath::root),
        },
        attachment => attachment.clone(),
    }
}
