//! Where an unprivileged caller's command runs: it leaves no limit that an administrator set.

use tidegate_api::{ApiError, ApiResult};
use tidegate_cgroup::discover::CgroupVersion;
use tidegate_cgroup::group::{GroupPath, restriction};

use crate::errors::of_group;
use crate::gates::privilege::is_bounded_by_admin;
use crate::gates::{Attachment, Gate};
use crate::kernel::Kernel;
use crate::peer::{Peer, denied, is_admin};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Root,
    Below(GroupPath),
}

/// v1's cpu hierarchy carries no other controller, and root may leave what root set. Else, on v2, a
/// process leaves nothing: it goes below the group that it is in, or from one group of ours to
/// another.
pub(crate) fn place_of(kernel: &Kernel, peer: &Peer, gates: &[Gate], pid: i32) -> ApiResult<Place> {
    check_gates(kernel, peer, gates, pid)?;
    let at = kernel.groups.group_of(pid).map_err(of_group)?;
    let Some(at) = at.filter(|_| !is_admin(peer)) else {
        return Ok(Place::Root);
    };
    if kernel.groups.version() == CgroupVersion::V1 {
        check_quotas(kernel, pid, &at)?;
        return Ok(Place::Root);
    }
    let mut home = at;
    // Beside the gate that it is in, not below: the use of both would count twice.
    while kernel.is_below_others(&home) {
        home = home.parent().unwrap_or_else(GroupPath::root);
    }
    if kernel.is_in_roots(&home) || home.is_root() {
        return Ok(Place::Root);
    }
    Ok(Place::Below(home))
}

/// With privilege, a process that is moved leaves the limits around its group.
pub(crate) fn left_limit(kernel: &Kernel, from: &GroupPath, to: &GroupPath) -> Option<String> {
    let around = std::iter::successors(Some(from.clone()), GroupPath::parent);
    let mut left = around.take_while(|group| !group.is_root() && !to.is_within(group));
    left.find_map(|group| {
        let limit = kernel.groups.bandwidth(&group).ok()?;
        limit.quota_us?;
        Some(format!(
            "it left {group}, so the limit there ({limit}) no longer applies to it"
        ))
    })
}

/// Without privilege, a process cannot leave what an administrator limited by a gate.
fn check_gates(kernel: &Kernel, peer: &Peer, gates: &[Gate], pid: i32) -> ApiResult<()> {
    if is_admin(peer) {
        return Ok(());
    }
    let Some(at) = kernel.groups.group_of(pid).ok().flatten() else {
        return Ok(());
    };
    // By the terms, not by what stands: the group's quota may be lifted for a while, or be one of
    // each task.
    let around = |gate: &&Gate| {
        let placed = !matches!(gate.record.attachment, Attachment::Observed { .. });
        placed && at.is_within(gate.record.attachment.group())
    };
    match gates
        .iter()
        .filter(around)
        .find(|gate| is_bounded_by_admin(gate))
    {
        None => Ok(()),
        Some(gate) => {
            let name = &gate.record.name;
            let what = format!("the limit or weight of gate {name}, set with privilege");
            Err(leaves(pid, gate.record.attachment.group(), &what))
        }
    }
}

/// v1: without privilege, a process cannot leave a CPU quota by a move to side work's group.
pub(crate) fn check_confinement(
    kernel: &Kernel,
    peer: &Peer,
    gates: &[Gate],
    pid: i32,
) -> ApiResult<()> {
    check_gates(kernel, peer, gates, pid)?;
    match kernel.groups.group_of(pid).ok().flatten() {
        Some(at) if !is_admin(peer) => check_quotas(kernel, pid, &at),
        _ => Ok(()),
    }
}

fn check_quotas(kernel: &Kernel, pid: i32, at: &GroupPath) -> ApiResult<()> {
    let quota_of = |group: &GroupPath| match kernel.groups.bandwidth(group) {
        Ok(bandwidth) if bandwidth.quota_us.is_some() => Some("a CPU quota"),
        Err(error) if !error.is_gone() => Some("a CPU quota that cannot be read"),
        _ => None,
    };
    for group in above(at).filter(|group| !kernel.is_in_roots(group)) {
        if let Some(what) = quota_of(&group) {
            return Err(leaves(pid, &group, what));
        }
    }
    Ok(())
}

/// Where a command cannot stay below its group (`why`), it may leave that if nothing restricts it
/// there.
pub(crate) fn check_unrestricted(
    kernel: &Kernel,
    pid: i32,
    at: &GroupPath,
    why: &str,
) -> ApiResult<()> {
    for group in above(at) {
        if let Some(what) = restriction(&kernel.groups, &group).map_err(of_group)? {
            let refused = leaves(pid, &group, &what);
            let detail = format!(
                "{}; it cannot be limited where it is: {why}",
                refused.detail
            );
            return Err(ApiError { detail, ..refused });
        }
    }
    Ok(())
}

fn above(group: &GroupPath) -> impl Iterator<Item = GroupPath> {
    std::iter::successors(Some(group.clone()), GroupPath::parent).take_while(|at| !at.is_root())
}

fn leaves(pid: i32, group: &GroupPath, what: &str) -> ApiError {
    denied(format!(
        "process {pid}: it is in {group}, which has {what}, and would leave that"
    ))
}
