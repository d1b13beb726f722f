//! What the gates come to for the scheduler: terms by group, and which quotas in kernel files are
//! copies of those.
//!
//! A limit is enforced once. Where the scheduler knows better (headroom, caps), the quota in the
//! kernel file is a copy, a *mirror*, and the scheduler is told not to look at it. Where the quota
//! itself is what was asked for, it is the scheduler's word, too: it honours every `cpu.max`.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::subgroups::Per;
use tidegate_engine::limit::{caps_for_each, hard_cap};
use tidegate_sched_ext::{CapScope, CapTerms, GateTerms, Kind};
use tidegate_terms::Class;

use crate::control_loop::ControlLoop;
use crate::gates::{Attachment, Gate};
use crate::kernel::Kernel;
use crate::runtime::Runtime;
use crate::sched_ext::feasible::{capped_groups, nested_caps};

#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub gates: BTreeMap<u64, GateTerms>,
    /// Groups whose quota is a copy, by cgroup id.
    pub mirrors: BTreeSet<u64>,
    pub notes: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Enforcement {
    pub mirror: bool,
    pub cap: Option<CapTerms>,
}

/// A gate's own quota and caps. `moved`: the loop moves the quota of its very group, which is
/// therefore a copy of the headroom's. `before_ucpu`: the rate that the group was limited to before
/// us. `sees_quotas`: the kernel tells the scheduler of quotas.
pub(crate) fn enforcement(
    gate: &Gate,
    moved: bool,
    before_ucpu: u64,
    sees_quotas: bool,
) -> Enforcement {
    let own = gate.own_limit();
    let each = caps_for_each(&gate.terms);
    let hard_ppt = match each {
        Some((_, hard_ppt, _)) => hard_ppt,
        None => gate.terms.cap_hard.value.ppt(),
    };
    let by_cap = each.is_none() && own.is_some() && hard_ppt.map(hard_cap) == own;
    let mirror = moved || own.is_some() && (by_cap || !sees_quotas);
    // A quota that is not looked at holds as a cap of its rate, where that is for the same whole
    // group.
    let before_ucpu = Some(before_ucpu).filter(|ucpu| moved && *ucpu != u64::MAX);
    let rate_ppt = own
        .filter(|_| mirror && (moved || !by_cap))
        .and_then(|own| own.rate_ucpu())
        .into_iter()
        .chain(before_ucpu)
        .min()
        .map(|ucpu| u32::try_from(ucpu / 1_000).unwrap_or(u32::MAX).max(1));
    let scope = match each {
        Some((Per::Process, ..)) => CapScope::Process,
        Some((Per::Task, ..)) => CapScope::Task,
        None => CapScope::Group,
    };
    // Beside a cap for each one, a quota that is not looked at has nothing to be held by;
    // `Plan::notes` says so.
    let hard_ppt = match (each, rate_ppt) {
        (Some(_), _) => hard_ppt,
        (None, Some(rate_ppt)) => Some(rate_ppt),
        (None, None) => hard_ppt.filter(|_| by_cap),
    };
    let soft_ppt = match each {
        Some((_, _, soft_ppt)) => soft_ppt.or(gate.terms.soft_for_all_ppt()),
        None => gate.terms.soft_ppt(),
    };
    Enforcement {
        mirror,
        cap: (hard_ppt.is_some() || soft_ppt.is_some()).then_some(CapTerms {
            hard_ppt,
            soft_ppt,
            scope,
        }),
    }
}

pub(crate) fn sched_ext_plan(runtime: &Runtime, gates: &[Gate], sees_quotas: bool) -> Plan {
    let (kernel, control_loop) = (&runtime.kernel, &runtime.control_loop);
    let mut plan = Plan::default();
    let id_of = |group: &GroupPath| kernel.groups.id(group).ok();
    for gate in gates.iter().filter(|gate| !gate.away) {
        let group = match &gate.record.attachment {
            // No group of its own: its hint is its slice, which the scheduler reads.
            Attachment::Observed { .. } => continue,
            attachment => attachment.group(),
        };
        let limited = kernel.limited_group(gate);
        if let Some(limited) = limited
            .as_ref()
            .filter(|group| is_ours(control_loop, group))
        {
            plan.mirrors.extend(id_of(limited));
        }
        let moved = limited.as_ref() == Some(group);
        let before_ucpu = match moved {
            true => kernel.journal().limit_before(group),
            false => u64::MAX,
        };
        let enforcement = enforcement(gate, moved, before_ucpu, sees_quotas);
        let Some(id) = id_of(group) else { continue };
        if enforcement.mirror && is_ours(control_loop, group) {
            plan.mirrors.insert(id);
        }
        if enforcement.mirror && caps_for_each(&gate.terms).is_some() && gate.own_limit().is_some()
        {
            let note = "quota: not held beside a cap for each process or task under the engine sched_ext here";
            let notes = plan.notes.entry(gate.record.name.clone()).or_default();
            notes.push(note.to_owned());
        }
        // Refused where it is set by itself; a command's gate may come to lie below such.
        if enforcement.cap.is_some()
            && let Err(why) = nested_caps(group, &capped_groups(gates, &gate.record.name))
        {
            let notes = plan.notes.entry(gate.record.name.clone()).or_default();
            notes.push(why.to_string());
        }
        plan.gates
            .insert(id, gate_terms(kernel, gate, enforcement.cap));
    }
    plan
}

/// A quota that was left to another writer is left to it by the scheduler, too.
fn is_ours(control_loop: &ControlLoop, group: &GroupPath) -> bool {
    !control_loop.lock().quotas.is_left_alone(group)
}

/// The hint of a gate's whole group. One that forks are not to inherit is in the slices of the
/// tasks that have it, which the scheduler reads; the others of the group have none. A hint of 0
/// that was asked for is not the hint of a group above.
fn group_hint(gate: &Gate) -> Option<i32> {
    if !gate.terms.latency_inherit.value.0 {
        return Some(0);
    }
    let hint = i32::from(gate.terms.latency.value.hint());
    (!gate.terms.latency.is_default()).then_some(hint)
}

fn gate_terms(kernel: &Kernel, gate: &Gate, cap: Option<CapTerms>) -> GateTerms {
    GateTerms {
        cap,
        hint: group_hint(gate),
        kind: match gate.class() {
            Class::Main => Some(Kind::Main),
            Class::Side => Some(Kind::Side),
            Class::Neutral => None,
        },
        idle_is_mirror: kernel
            .journal()
            .background_of(gate.record.attachment.group())
            .is_some(),
        ..GateTerms::default()
    }
}

/// Headroom and tolerance of the machine, in millionths.
pub(crate) fn sched_ext_machine(control_loop: &ControlLoop) -> (u32, u32) {
    let control = control_loop.lock();
    (control.headroom_ppm(), control.demand().tolerance_ppm)
}

/// The quota of this group is about to be written for the loop to move: a copy.
pub(crate) fn mark_moved(runtime: &Runtime, group: &GroupPath) {
    mark(runtime, group, true);
}

/// The quota of the gate's group is about to be written for its own limit: a copy or not.
pub(crate) fn mark_own(runtime: &Runtime, gate: &Gate, group: &GroupPath) {
    if runtime.sched_ext.is_loaded() {
        let enforcement = enforcement(gate, false, u64::MAX, runtime.sched_ext.sees_quotas());
        mark(runtime, group, enforcement.mirror);
    }
}

pub(crate) fn unmark(runtime: &Runtime, group: &GroupPath) {
    mark(runtime, group, false);
}

fn mark(runtime: &Runtime, group: &GroupPath, mirror: bool) {
    if runtime.sched_ext.is_loaded()
        && let Ok(id) = runtime.kernel.groups.id(group)
    {
        runtime.sched_ext.mark(id, mirror);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(pairs: &[(&str, &str)]) -> Gate {
        crate::gates::of_terms("job", pairs)
    }

    fn cap(hard_ppt: Option<u32>, soft_ppt: Option<u32>, scope: CapScope) -> Option<CapTerms> {
        Some(CapTerms {
            hard_ppt,
            soft_ppt,
            scope,
        })
    }

    #[test]
    fn a_group_has_the_hint_that_all_its_tasks_are_to_have() {
        assert_eq!(group_hint(&gate(&[("class", "main")])), None);
        assert_eq!(group_hint(&gate(&[("latency", "-10")])), Some(-10));
        assert_eq!(group_hint(&gate(&[("latency", "0")])), Some(0));
        let alone = gate(&[("latency", "-10"), ("latency_inherit", "no")]);
        assert_eq!(group_hint(&alone), Some(0));
    }

    #[test]
    fn each_limit_is_enforced_once() {
        let quota = ("quota", "20ms");
        let hard = ("cap_hard", "100‰");
        let nothing = enforcement(&gate(&[]), false, u64::MAX, true);
        assert_eq!((nothing.mirror, nothing.cap), (false, None));
        let by_quota = enforcement(&gate(&[quota]), false, u64::MAX, true);
        assert_eq!((by_quota.mirror, by_quota.cap), (false, None), "cpu.max");
        let by_cap = enforcement(&gate(&[hard]), false, u64::MAX, true);
        assert!(by_cap.mirror, "its quota is a copy");
        assert_eq!(by_cap.cap, cap(Some(100), None, CapScope::Group));
        // The cap is the lower one: the quota has nothing to forbid.
        let both = enforcement(&gate(&[quota, hard]), false, u64::MAX, true);
        assert_eq!(both, by_cap);
        // The quota is: one quota in the cap's shape holds both, and the scheduler honours it.
        let both = enforcement(&gate(&[quota, ("cap_hard", "500‰")]), false, u64::MAX, true);
        assert_eq!((both.mirror, both.cap), (false, None));
        let soft = enforcement(&gate(&[("cap_soft", "50‰"), quota]), false, u64::MAX, true);
        assert_eq!(soft.cap, cap(None, Some(50), CapScope::Group));
        assert!(!soft.mirror);
    }

    #[test]
    fn a_quota_that_the_scheduler_does_not_see_holds_as_a_cap() {
        let quota = ("quota", "20ms");
        let moved = enforcement(&gate(&[("class", "side"), quota]), true, u64::MAX, true);
        assert!(moved.mirror, "the headroom's");
        assert_eq!(moved.cap, cap(Some(200), None, CapScope::Group));
        let before = enforcement(&gate(&[("class", "side"), quota]), true, 150_000, true);
        let theirs = "its administrator's word is not loosened";
        assert_eq!(
            before.cap,
            cap(Some(150), None, CapScope::Group),
            "{theirs}"
        );
        let before_6_17 = enforcement(&gate(&[quota]), false, u64::MAX, false);
        assert!(before_6_17.mirror);
        assert_eq!(before_6_17.cap, cap(Some(200), None, CapScope::Group));
    }

    #[test]
    fn caps_for_each_are_the_schedulers_with_their_scope() {
        let scope = ("cap_scope", "task");
        let each = enforcement(&gate(&[("cap_hard", "100‰"), scope]), false, u64::MAX, true);
        assert_eq!(each.cap, cap(Some(100), None, CapScope::Task));
        assert!(!each.mirror);
        let both = gate(&[
            ("cap_soft", "100‰"),
            ("cap_scope", "process"),
            ("quota", "20ms"),
        ]);
        let both = enforcement(&both, false, u64::MAX, true);
        assert_eq!(both.cap, cap(None, Some(100), CapScope::Process));
        assert!(!both.mirror, "the quota counts for all of them");
    }
}
