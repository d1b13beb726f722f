//! `burst = auto` on the machine: the gates that ask for it are polled ten times a second, outside the control loop, whose step
//! must not become longer.
//!
//! The law and what is worth a write are in knobs ([`tidegate_engine::control::BurstLoop`]); here counters are read and bursts written, through the
//! journal like every other limit.

use std::time::Duration;

use tidegate_api::ApiError;
use tidegate_cgroup::group::GroupPath;
use tidegate_engine::control::{BURST_WINDOW_NS, BurstSeen};
use tidegate_engine::sense::Counters;
use tidegate_law::burst;
use tracing::warn;

use crate::errors::of_group;
use crate::ext::view::limit_stat;
use crate::gates::{Gate, Gates};
use crate::kernel::Kernel;
use crate::runtime::Runtime;
use crate::runtime::mechanisms::bandwidth::{enforce_bandwidth, take_up_burst};

/// While no gate asks for it.
const IDLE_POLL: Duration = Duration::from_secs(1);

/// Until the next poll.
pub(crate) fn period(has_bursts: bool) -> Duration {
    match has_bursts {
        true => Duration::from_nanos(BURST_WINDOW_NS),
        false => IDLE_POLL,
    }
}

/// One poll; says whether any gate asks for it.
pub(crate) fn poll_bursts(registry: &Gates, runtime: &Runtime, now_ns: u64) -> bool {
    let mut gates = registry.lock();
    let mut any = false;
    // The unit of one that is away has no group to look at.
    let asks = |gate: &&mut Gate| gate.has_auto_burst() && !gate.away;
    for gate in gates.iter_mut().filter(asks) {
        any = true;
        let machine = runtime.control().counters().copied();
        if let Some(machine) = machine
            && let Err(why) = step_burst(runtime, gate, now_ns, &machine)
        {
            warn!("gate {}: burst: {why}", gate.record.name);
            // What stands is read again.
            gate.auto = None;
        }
    }
    any
}

fn step_burst(
    runtime: &Runtime,
    gate: &mut Gate,
    now_ns: u64,
    machine: &Counters,
) -> Result<(), ApiError> {
    let kernel = &runtime.kernel;
    let Some(group) = gate.record.attachment.placed().cloned() else {
        return Ok(());
    };
    take_up_burst(kernel, gate);
    let room_ns = burst_room_ns(kernel, gate, &group);
    let Some(auto) = gate.auto.as_mut().filter(|auto| auto.is_due(now_ns)) else {
        return Ok(());
    };
    let stat = limit_stat(&runtime.ext, kernel, &group).map_err(of_group)?;
    // v1's cpuacct need not have the group that cpu has.
    let Some(used_ns) = kernel.groups.usage_ns(&group).ok().flatten() else {
        const NOTE: &str =
            "burst: auto: the CPU time of its group is not accounted, so none is given";
        if !gate.record.notes.iter().any(|note| note == NOTE) {
            gate.record.notes.push(NOTE.to_owned());
        }
        return Ok(());
    };
    let now = BurstSeen {
        at_ns: now_ns,
        used_ns,
        nr_throttled: stat.nr_throttled,
        machine_at_ns: machine.now_ns,
        capacity_ns: machine.capacity_ns,
        idle_ns: machine.capacity_ns.saturating_sub(machine.busy_ns),
    };
    if auto.step(&now, room_ns).is_none() {
        return Ok(());
    }
    let own = gate.own_limit();
    if kernel.limited_group(gate).as_ref() == Some(&group) {
        runtime.control().quotas.set_own(&group, own);
        return Ok(());
    }
    enforce_bandwidth(runtime, gate)
}

/// The most burst that the limits above leave, and the gate's own hard cap.
fn burst_room_ns(kernel: &Kernel, gate: &Gate, group: &GroupPath) -> u64 {
    let most = gate.limit_with_burst(u64::MAX);
    let mut room_ns = most.map_or(burst::NO_PARENT, |most| most.burst_us * 1_000);
    let Some(own) = gate.limit_with_burst(0) else {
        return 0;
    };
    let mut at = group.parent();
    while let Some(above) = at.filter(|above| !above.is_root()) {
        if let Ok(limit) = kernel.groups.bandwidth(&above)
            && let Some(quota_us) = limit.quota_us
        {
            let left_ns = burst::room_ns(
                own.quota_us.unwrap_or(0).saturating_mul(1_000),
                own.period_us.saturating_mul(1_000),
                quota_us.saturating_mul(1_000),
                limit.period_us.saturating_mul(1_000),
                limit.burst_us.saturating_mul(1_000),
            );
            room_ns = room_ns.min(left_ns);
        }
        at = above.parent();
    }
    room_ns
}
