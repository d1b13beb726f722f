//! A gate's own limit (quota, period and burst, and a hard cap for all of it) as the quota of its
//! group.
//!
//! Where the loop moves the quota of that very group (a side gate that stays where it is), the loop
//! holds to the own limit, too; everywhere else it is written here, once, and stays.

use tidegate_api::{ApiError, ApiResult, ErrorKind};
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::discover::CgroupVersion;
use tidegate_cgroup::group::GroupPath;
use tidegate_engine::apply::JournalError;
use tidegate_engine::ledger::Change;
use tidegate_engine::limit;
use tidegate_terms::Burst;

use crate::errors::not_recorded;
use crate::gates::Gate;
use crate::kernel::Kernel;
use crate::runtime::Runtime;
use crate::runtime::scheduler_plan::{mark_own, unmark};

/// How the note on the limit that holds begins.
const BINDS: &str = "binds: ";

/// Writes the gate's own limit to its group, or puts back what stood there before when it has none
/// any more.
pub(crate) fn enforce_bandwidth(runtime: &Runtime, gate: &mut Gate) -> ApiResult<()> {
    let kernel = &runtime.kernel;
    gate.burst_room_us = burst_room_us(runtime, gate);
    let Some(group) = still_group(kernel, gate) else {
        return Ok(());
    };
    let Some(own) = gate.own_limit() else {
        withdraw_bandwidth(runtime, gate);
        return Ok(());
    };
    if runtime.control().quotas.is_left_alone(&group) {
        return Ok(());
    }
    let own = without_burst(kernel, gate, own);
    note_limits(kernel, gate, &group, &own);
    mark_own(runtime, gate, &group);
    let set = runtime
        .journal()
        .set_own(&group, &gate.record.name, own, gate.own_fallback());
    let holds = set.map_err(|error| explain_refused(kernel, gate, &group, &own, &error))?;
    if holds != own {
        gate.record.notes.push(format!(
            "{BINDS}its group was limited to {holds} by another program, which holds"
        ));
    }
    Ok(())
}

/// Puts back what stood on the gate's group before its own limit, where that is not the loop's.
pub(crate) fn withdraw_bandwidth(runtime: &Runtime, gate: &Gate) -> Vec<String> {
    let kernel = &runtime.kernel;
    let Some(group) = still_group(kernel, gate) else {
        return Vec::new();
    };
    if !runtime.journal().limits(&group) {
        return Vec::new();
    }
    unmark(runtime, &group);
    let mut journal = runtime.journal();
    let left = journal.restore_lines_of(&group, Change::is_bandwidth);
    journal.end_own(&group);
    left
}

fn still_group(kernel: &Kernel, gate: &Gate) -> Option<GroupPath> {
    let group = gate.record.attachment.placed()?;
    (kernel.limited_group(gate).as_ref() != Some(group)).then(|| group.clone())
}

fn without_burst(kernel: &Kernel, gate: &mut Gate, own: Bandwidth) -> Bandwidth {
    const NOTE: &str = "burst: this kernel has none (it came with 5.14)";
    gate.record.notes.retain(|note| note != NOTE);
    let possible = kernel.as_kernel_has(own);
    if possible != own && gate.terms.burst.value != Burst::NONE {
        gate.record.notes.push(NOTE.to_owned());
    }
    possible
}

fn note_limits(kernel: &Kernel, gate: &mut Gate, group: &GroupPath, own: &Bandwidth) {
    gate.record.notes.retain(|note| !note.starts_with(BINDS));
    if let Some((above, limit)) = kernel.limited_above(group, own) {
        gate.record.notes.push(format!(
            "{BINDS}its own limit of {own} is above that of {above} ({limit}), which holds"
        ));
    }
}

fn explain_refused(
    kernel: &Kernel,
    gate: &Gate,
    group: &GroupPath,
    own: &Bandwidth,
    error: &JournalError,
) -> ApiError {
    let refused =
        matches!(error, JournalError::Group(error) if error.errno() == Some(libc::EINVAL));
    let v1 = kernel.groups.version() == CgroupVersion::V1;
    match kernel.limited_above(group, own) {
        Some((above, limit)) if refused && v1 => {
            let detail = format!(
                "quota: gate {}: {own} is more than {above} above it has ({limit}), which cgroup v1 refuses",
                gate.record.name
            );
            ApiError::new(ErrorKind::Usage, detail).with_remedy(format!(
                "ask for at most {}m (thousandths of a CPU), or raise the limit of {above} first",
                limit.rate_ucpu().unwrap_or(0) / 1_000
            ))
        }
        _ => not_recorded(error.clone()),
    }
}

/// The most burst that the limits above leave. A quota that the loop moves does not count: it
/// follows main's load, and not what side work is given.
fn burst_room_us(runtime: &Runtime, gate: &Gate) -> u64 {
    let asks = gate.terms.burst.value == Burst::Max;
    let Some(own) = limit::with_burst(&gate.terms, 0).filter(|_| asks) else {
        return u64::MAX;
    };
    room_us(runtime, gate.record.attachment.group(), &own)
}

pub(super) fn room_us(runtime: &Runtime, group: &GroupPath, own: &Bandwidth) -> u64 {
    let decision = runtime.decision();
    let mut room_us = u64::MAX;
    let mut at = group.parent();
    while let Some(above) = at.filter(|above| !above.is_root()) {
        if decision.group(above.as_str()).is_none()
            && let Ok(limit) = runtime.kernel.groups.bandwidth(&above)
        {
            room_us = room_us.min(limit::burst_room_us(own, &limit));
        }
        at = above.parent();
    }
    room_us
}
