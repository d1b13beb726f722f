//! A gate's burst without a quota applies to the limits that other programs (systemd, kubelet, a
//! container runtime) set on its group and on the group's children, such as a pod's containers.
//!
//! Their quotas stay as they are, and the burst follows them.

use tidegate_api::ApiResult;
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::group::GroupPath;
use tidegate_engine::apply::BurstWrite;
use tidegate_engine::ledger::Change;
use tidegate_terms::Burst;
use tracing::warn;

use crate::errors::not_recorded;
use crate::gates::{Gate, Gates};
use crate::runtime::Runtime;
use crate::runtime::mechanisms::bandwidth::room_us;

/// Writes the burst of those limits, and puts it back where a limit or the term is gone.
pub(super) fn enforce_bursts(runtime: &Runtime, gate: &Gate, write: BurstWrite) -> ApiResult<()> {
    let name = &gate.record.name;
    let limits = limits(runtime, gate);
    let stale = runtime.journal().bursts_of(name);
    for group in stale {
        if !limits.iter().any(|(limited, _)| *limited == group) {
            runtime.journal().end_burst(&group);
        }
    }
    for (group, limit) in limits {
        let quota_us = limit.quota_us.unwrap_or(0);
        let burst_us = match gate.terms.burst.value {
            Burst::Of(span) => span.us().min(quota_us),
            // The groups above come first: a burst of theirs is room for this one.
            Burst::Max => quota_us.min(room_us(runtime, &group, &limit)),
        };
        let mut journal = runtime.journal();
        let set = journal.set_burst(&group, name, burst_us, gate.own_fallback(), write);
        set.map_err(not_recorded)?;
    }
    Ok(())
}

pub(super) fn withdraw_bursts(runtime: &Runtime, gate: &Gate) -> Vec<String> {
    let mut journal = runtime.journal();
    let groups = journal.bursts_of(&gate.record.name);
    let lines = groups
        .iter()
        .flat_map(|group| journal.restore_lines_of(group, Change::is_burst));
    lines.collect()
}

/// Other programs change their limits, and groups come and go.
pub(crate) fn follow_limits(registry: &Gates, runtime: &Runtime) {
    for gate in registry.lock().iter().filter(|gate| is_on_others(gate)) {
        if let Err(error) = enforce_bursts(runtime, gate, BurstWrite::IfNew) {
            warn!("gate {}: {error}", gate.record.name);
        }
    }
}

/// The limits that it applies to, with the burst that each has now.
pub(crate) fn burst_notes(runtime: &Runtime, gate: &Gate) -> Vec<String> {
    let limits = limits(runtime, gate);
    if limits.is_empty() && is_on_others(gate) {
        let why = match runtime.kernel.machine.features.burst.present {
            Some(false) => "this kernel has none (it came with 5.14)",
            _ => "no effect yet: neither its group nor a child of it has a limit",
        };
        return vec![format!("burst: {why}")];
    }
    let note = |(group, limit)| {
        format!("burst: acts on the limit of {group}, set by another program: {limit}")
    };
    limits.into_iter().map(note).collect()
}

fn is_on_others(gate: &Gate) -> bool {
    gate.terms.burst.value != Burst::NONE && gate.own_limit().is_none() && !gate.is_limited()
}

/// The limits that other programs set and the burst applies to, outer ones first.
fn limits(runtime: &Runtime, gate: &Gate) -> Vec<(GroupPath, Bandwidth)> {
    let kernel = &runtime.kernel;
    let Some(group) = gate.record.attachment.placed() else {
        return Vec::new();
    };
    if !is_on_others(gate) || kernel.machine.features.burst.present == Some(false) {
        return Vec::new();
    }
    let below = kernel.groups.children(group).unwrap_or_default();
    let mut groups: Vec<GroupPath> = std::iter::once(group.clone()).chain(below).collect();
    let journal = runtime.journal();
    groups.retain(|one| {
        // A child's own gate goes before this one.
        let is_of_child = |of: &str| one != group && of != gate.record.name;
        let is_taken = journal.burst_of(one).is_some_and(is_of_child);
        !is_taken && !journal.has_made(one) && !journal.limits(one)
    });
    drop(journal);
    let limited = groups.into_iter().filter_map(|group| {
        let limit = kernel.groups.bandwidth(&group).ok()?;
        limit.quota_us.map(|_| (group, limit))
    });
    limited.collect()
}
