//! A limit that was set with privilege cannot be left by becoming side work.

use tidegate_api::{ApiError, ErrorKind};
use tidegate_knobs::discover::CgroupVersion;
use tidegate_knobs::group::GroupPath;

use crate::gates::privilege::is_bounded_by_admin;
use crate::gates::{Attachment, Gate};
use crate::kernel::Kernel;
use crate::peer::{Peer, ask_an_admin, is_admin};

/// Without privilege, a process cannot leave what an administrator limited by a move to side work's group.
pub(crate) fn check_confinement(
    kernel: &Kernel,
    peer: &Peer,
    gates: &[Gate],
    pid: i32,
) -> Result<(), ApiError> {
    if is_admin(peer) {
        return Ok(());
    }
    let denied = |group: &GroupPath, what: &str| {
        let detail =
            format!("process {pid}: it is in {group}, which has {what}, and would leave that");
        Err(ApiError::new(ErrorKind::Denied, detail).with_mend(ask_an_admin()))
    };
    let Some(at) = kernel.groups.group_of(pid).ok().flatten() else {
        return Ok(());
    };
    // By the terms, not by what stands: the group's quota may be lifted for a while, or be one of each task.
    let around = |gate: &&Gate| {
        let placed = !matches!(gate.record.attachment, Attachment::Observed { .. });
        placed && at.is_within(gate.record.attachment.group())
    };
    if let Some(gate) = gates
        .iter()
        .filter(around)
        .find(|gate| is_bounded_by_admin(gate))
    {
        let what = format!(
            "the limit or weight of gate {}, set with privilege",
            gate.record.name
        );
        return denied(gate.record.attachment.group(), &what);
    }
    let mut next = Some(at);
    while let Some(group) = next.filter(|at| !at.is_root()) {
        let is_ours = group.is_within(&kernel.side_root()) || group.is_within(&kernel.main_root());
        if let Some(what) = limit_on(kernel, &group).filter(|_| !is_ours) {
            return denied(&group, what);
        }
        next = group.parent();
    }
    Ok(())
}

/// A limit on the group that its processes lose by leaving it. What cannot be read, for another reason than that it is
/// not there, counts as one.
fn limit_on(kernel: &Kernel, group: &GroupPath) -> Option<&'static str> {
    match kernel.groups.bandwidth(group) {
        Ok(bandwidth) if bandwidth.quota_us.is_some() => return Some("a CPU quota"),
        Err(error) if !error.is_gone() => return Some("a CPU quota that cannot be read"),
        _ => {}
    }
    // v1's memory hierarchy is not touched; v2 has but one.
    let is_limited = |name: &str| {
        let text = kernel.fs.read(&kernel.groups.dir(group).join(name));
        text.is_ok_and(|text| text.trim() != "max")
    };
    let v2 = kernel.groups.version() == CgroupVersion::V2;
    (v2 && ["memory.max", "memory.high"].into_iter().any(is_limited)).then_some("a memory limit")
}
