//! What is shown of the scheduler.

use tidegate_api::{CapCounts, Decision, GateCounts, SchedExtView};
use tidegate_cgroup::group::{CpuStat, GroupPath, GroupResult};
use tidegate_engine::control::Use;
use tidegate_engine::sync::lock;
use tidegate_law::{HeadroomDecision, Reason};
use tidegate_sched_ext::CapStat;

use crate::gates::Gate;
use crate::runtime::Runtime;
use crate::sched_ext::SchedExtSupervisor;
use crate::sched_ext::backoff::ENDS_MAX;
use crate::sched_ext::counts::{cap_counts, gate_counts, quota_counts, quota_sum};

/// So much of the kernel's dump is shown; the log has all of it.
const DUMP_MAX: usize = 4_000;
/// Counts of quotas and caps are read again after this long: each gate of a poll asks, and each
/// read reads all.
const FRESH_NS: u64 = 50_000_000;

pub(crate) fn engine(sched_ext: &SchedExtSupervisor) -> &'static str {
    if sched_ext.holds() {
        "sched_ext"
    } else {
        "cgroup"
    }
}

pub(crate) fn sched_ext_view(sched_ext: &SchedExtSupervisor, now_ns: u64) -> Option<SchedExtView> {
    if !sched_ext.is_wanted() {
        return None;
    }
    let on = sched_ext.holds();
    let inner = lock(&sched_ext.inner);
    let history = &inner.history;
    let seconds = |ns: u64| ns as f64 / 1e9;
    let mut view = SchedExtView {
        on,
        loads: history.loads,
        ends: history.ends,
        on_seconds: history
            .since_ns
            .filter(|_| on)
            .map(|since_ns| seconds(now_ns.saturating_sub(since_ns))),
        update_error: history.update_error.clone(),
        ..SchedExtView::default()
    };
    if let Some((ended, at_ns)) = &history.last {
        view.last_kind = Some(ended.kind);
        view.last_reason = Some(ended.reason.clone());
        view.last_message = Some(ended.message.clone());
        view.last_dump = Some(ended.dump.chars().take(DUMP_MAX).collect());
        view.last_ago_seconds = Some(seconds(now_ns.saturating_sub(*at_ns)));
    }
    if on {
        let limits = inner.loaded.as_ref().map(|loaded| loaded.limits());
        view.quotas = limits.map(|limits| quota_sum(&limits));
        return Some(view);
    }
    let why = match (&inner.loaded, &history.why) {
        (Some(_), _) => "it has just ended".to_owned(),
        (None, Some(why)) => why.clone(),
        (None, None) => "it was not loaded so far".to_owned(),
    };
    view.why = Some(why.clone());
    view.reload_in_seconds = inner
        .next_ns
        .map(|at_ns| seconds(at_ns.saturating_sub(now_ns)));
    view.off = Some(match view.reload_in_seconds {
        None => format!(
            "sched_ext off: {why}; not loaded again after {ENDS_MAX} ends within an hour; restart the agent, or take engine = cgroup"
        ),
        Some(in_s) if in_s > 0.0 => format!("sched_ext off: {why}; reload in {:.0} s", in_s.ceil()),
        Some(_) => format!("sched_ext off: {why}; it is being loaded"),
    });
    Some(view)
}

/// The scheduler's own decision on side work, while it is in force and there is any. `second` is
/// the use of the last second.
pub(crate) fn sched_ext_decision(
    sched_ext: &SchedExtSupervisor,
    second: &Use,
) -> Option<HeadroomDecision> {
    if !sched_ext.holds() {
        return None;
    }
    let found = lock(&sched_ext.inner).loaded.as_ref()?.headroom()?;
    Some(mean_decision(found, second))
}

/// The scheduler's law steps each millisecond: a main that works and sleeps by turns has whole CPUs
/// at one step and none at the next, and side work the tolerance or the rest. Readers get main and
/// the allowance as means of a second. They need no trim, which corrects the law's estimate of
/// main.
fn mean_decision(decision: HeadroomDecision, second: &Use) -> HeadroomDecision {
    if second.capacity_ns == 0 || matches!(decision.reason, Reason::Warmup | Reason::Stale) {
        return decision;
    }
    let ucpu = |ns: u64| (second.cpus(ns) * 1e6).round() as u64;
    let main_ns = second.busy_ns.saturating_sub(second.side_ns);
    let left_ns = second.capacity_ns.saturating_sub(main_ns);
    let room_ucpu = ucpu(left_ns).saturating_sub(decision.asked_ucpu);
    HeadroomDecision {
        allowance_ucpu: room_ucpu.max(decision.floor_ucpu),
        capacity_ucpu: ucpu(second.capacity_ns),
        main_est_ucpu: ucpu(main_ns),
        side_ucpu: ucpu(second.side_ns),
        idle_ucpu: ucpu(second.idle_ns()),
        reason: match room_ucpu > decision.floor_ucpu {
            true => Reason::Track,
            false => Reason::Floor,
        },
        ..decision
    }
}

/// What became of a group's quota: the kernel's counts, which stand still while a scheduler is in
/// force, and all schedulers'.
pub(crate) fn limit_stat(runtime: &Runtime, group: &GroupPath) -> GroupResult<CpuStat> {
    let counted = runtime.kernel.groups.cpu_stat(group)?;
    Ok(match sched_ext_stat(runtime, group) {
        Some(stat) => counted.plus(stat),
        None => counted,
    })
}

fn sched_ext_stat(runtime: &Runtime, group: &GroupPath) -> Option<CpuStat> {
    let (sched_ext, kernel) = (&runtime.sched_ext, &runtime.kernel);
    if !sched_ext.is_wanted() {
        return None;
    }
    let id = kernel.groups.id(group).ok()?;
    let now_ns = kernel.clock.now_ns();
    let mut inner = lock(&sched_ext.inner);
    let earlier = inner.earlier.limit(id);
    let Some(loaded) = &inner.loaded else {
        return Some(earlier);
    };
    // All gates ask one after the other.
    if now_ns.saturating_sub(inner.limits.0) >= FRESH_NS {
        let limits = loaded.limits().into_iter();
        let by_id = limits.map(|limit| (limit.cgroup_id, limit)).collect();
        inner.limits = (now_ns, by_id);
    }
    let now = inner.limits.1.get(&id).map(quota_counts);
    Some(earlier.plus(now.unwrap_or_default()))
}

/// What became of a group's cap; none while the scheduler is not in force, or was told of none.
pub(crate) fn sched_ext_cap(runtime: &Runtime, group: &GroupPath) -> Option<CapStat> {
    let (sched_ext, kernel) = (&runtime.sched_ext, &runtime.kernel);
    if !sched_ext.holds() {
        return None;
    }
    let id = kernel.groups.id(group).ok()?;
    let now_ns = kernel.clock.now_ns();
    let mut inner = lock(&sched_ext.inner);
    inner.gates.get(&id)?.cap?;
    if now_ns.saturating_sub(inner.caps.0) >= FRESH_NS {
        let caps = inner.loaded.as_ref()?.caps();
        let by_id = caps.into_iter().map(|cap| (cap.cgroup_id, cap));
        inner.caps = (now_ns, by_id.collect());
    }
    inner.caps.1.get(&id).copied()
}

/// What the schedulers counted of a gate's group; none while none is in force, or it asks nothing
/// of that group.
pub(crate) fn sched_ext_counts(runtime: &Runtime, gate: &Gate) -> Option<GateCounts> {
    let (sched_ext, kernel) = (&runtime.sched_ext, &runtime.kernel);
    if !sched_ext.holds() {
        return None;
    }
    let group = gate.record.attachment.group();
    let id = kernel.groups.id(group).ok()?;
    let cap = sched_ext_cap(runtime, group).map(|cap| CapCounts {
        background_cpus: gate.background_cpus,
        ..cap_counts(&cap)
    });
    let inner = lock(&sched_ext.inner);
    let work = inner.loaded.as_ref()?.work(id);
    let work = inner.earlier.work(id, work);
    // A gate for which there was no account is not counted on its own; its cap is.
    if work.is_none() && cap.is_none() {
        return None;
    }
    Some(GateCounts {
        cap,
        ..work.as_ref().map(gate_counts).unwrap_or_default()
    })
}

pub(crate) fn sched_ext_notes(sched_ext: &SchedExtSupervisor, gate: &str) -> Vec<String> {
    let inner = lock(&sched_ext.inner);
    inner.notes.get(gate).cloned().unwrap_or_default()
}

/// What a person should know of the scheduler's floors: side tasks so many that they need more than
/// the tolerance.
pub(crate) fn sched_ext_alerts(decision: &Decision, tolerance_ratio: f64) -> Option<String> {
    let asked_cpus = decision.capacity_cpus * tolerance_ratio;
    // A thousandth of a CPU does not matter.
    (decision.tolerance_cpus > asked_cpus + 0.001).then(|| {
        format!(
            "engine sched_ext: side work has {:.3} CPUs at least and not {:.3}, the tolerance: the kernel's watchdog wants 1 ms in 15 s for \
             each of its tasks",
            decision.tolerance_cpus, asked_cpus
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(reason: Reason) -> HeadroomDecision {
        HeadroomDecision {
            reason,
            allowance_ucpu: 10_000,
            floor_ucpu: 10_000,
            capacity_ucpu: 1_000_000,
            asked_ucpu: 300_000,
            main_est_ucpu: 1_000_000,
            main_now_ucpu: 1_000_000,
            ..HeadroomDecision::default()
        }
    }

    fn second(main_ms: u64, side_ms: u64) -> Use {
        Use {
            wall_ns: 1_000_000_000,
            capacity_ns: 1_000_000_000,
            busy_ns: (main_ms + side_ms) * 1_000_000,
            side_ns: side_ms * 1_000_000,
            ..Use::default()
        }
    }

    #[test]
    fn the_decision_is_a_mean_while_main_works_by_turns() {
        let by_turns = mean_decision(found(Reason::Floor), &second(400, 300));
        assert_eq!(by_turns.allowance_ucpu, 300_000);
        assert_eq!(by_turns.main_est_ucpu, 400_000);
        assert_eq!(by_turns.idle_ucpu, 300_000);
        assert_eq!(by_turns.reason, Reason::Track);

        let full = mean_decision(found(Reason::Floor), &second(990, 10));
        assert_eq!(full.allowance_ucpu, 10_000);
        assert_eq!(full.main_est_ucpu, 990_000);
        assert_eq!(full.reason, Reason::Floor);

        let warmup = mean_decision(found(Reason::Warmup), &second(0, 0));
        assert_eq!(warmup.allowance_ucpu, 10_000);
        assert_eq!(warmup.reason, Reason::Warmup);
    }
}
