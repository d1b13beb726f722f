//! The gates as they are shown.

use std::collections::HashMap;

use tidegate_api::{Decision, GateView, LimitView, TermView};
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::group::{CpuStat, GroupPath};
use tidegate_engine::limit::hard_cap;
use tidegate_engine::sync::lock;
use tidegate_terms::View;

use super::figures::{cpus, seconds};
use crate::gates::{Attachment, Gate, Gates};
use crate::metrics::GATES_MAX;
use crate::runtime::Runtime;
use crate::runtime::measure::{measure_for_show, pids};
use crate::runtime::mechanisms::burst::burst_notes;
use crate::runtime::mechanisms::caps::cap_view;
use crate::runtime::mechanisms::hint_sweep::latency_view;
use crate::runtime::mechanisms::subgroups::{beside, subgroups_note};
use crate::runtime::scheduler_view::{engine, limit_stat, sched_ext_counts, sched_ext_notes};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    Whole,
    /// What metrics have: neither terms nor notes, and gates without series of their own as they
    /// were last polled.
    Figures,
    /// No gate is shown, and no kernel file of one is read.
    NoGates,
}

impl Detail {
    pub fn measured(self) -> usize {
        match self {
            Detail::Whole => usize::MAX,
            Detail::Figures => GATES_MAX,
            Detail::NoGates => 0,
        }
    }
}

pub(crate) fn gate_named(registry: &Gates, runtime: &Runtime, name: &str) -> Option<GateView> {
    let decision = runtime.decision();
    let now_ns = runtime.kernel.clock.now_ns();
    let mut gates = registry.lock();
    let gate = gates.iter_mut().find(|gate| gate.record.name == name)?;
    measure_for_show(runtime, gate, &decision, now_ns);
    let gate = std::slice::from_ref(&*gate);
    gate_views(runtime, gate, &decision, Detail::Whole, now_ns).pop()
}

pub(super) fn gate_views(
    runtime: &Runtime,
    gates: &[Gate],
    decision: &Decision,
    detail: Detail,
    now_ns: u64,
) -> Vec<GateView> {
    if detail == Detail::NoGates {
        return Vec::new();
    }
    let mut roots = HashMap::new();
    let shown = gates.iter().map(|gate| {
        let figures = figures(runtime, gate, &mut roots);
        match detail {
            Detail::Figures | Detail::NoGates => figures,
            Detail::Whole => with_terms(runtime, gate, decision, figures, now_ns),
        }
    });
    shown.collect()
}

/// `roots` has what was read of groups that limit several gates.
fn figures(runtime: &Runtime, gate: &Gate, roots: &mut HashMap<GroupPath, CpuStat>) -> GateView {
    let kernel = &runtime.kernel;
    let record = &gate.record;
    let group = record.attachment.group();
    let limited = kernel.limited_group(gate);
    // Where no limit of its own or of its tasks and processes counts, that of the group does that
    // is limited with it in it.
    let of_root = |group: &GroupPath| {
        let read = || limit_stat(runtime, group).unwrap_or_default();
        *roots.entry(group.clone()).or_insert_with(read)
    };
    let stat = gate.stat.or_else(|| limited.as_ref().map(of_root));
    let stat = stat.unwrap_or_default();
    let processes = match &record.attachment {
        Attachment::Observed { .. } => pids(kernel, gate).len() as u64,
        _ => {
            let mut groups = beside(runtime, &record.name, group);
            groups.push(group.clone());
            let counts = groups.iter().map(|group| kernel.processes_below(group, 4));
            counts.sum::<usize>() as u64
        }
    };
    GateView {
        name: record.name.clone(),
        class: gate.class().to_string(),
        cgroup: group.to_string(),
        processes,
        usage_cpus: gate.usage_cpus,
        used_seconds: gate.usage.map(|(_, ns)| seconds(ns)),
        nr_throttled: stat.nr_throttled,
        throttled_seconds: stat.throttled_ns as f64 / 1e9,
        nr_periods: stat.nr_periods,
        nr_bursts: stat.nr_bursts,
        burst_us: stat.burst_ns / 1_000,
        held: gate.held.view.clone(),
        jobs: lock(&runtime.jobservers).jobs_of(&record.name),
        ..GateView::default()
    }
}

fn with_terms(
    runtime: &Runtime,
    gate: &Gate,
    decision: &Decision,
    figures: GateView,
    now_ns: u64,
) -> GateView {
    let kernel = &runtime.kernel;
    let record = &gate.record;
    let own = gate.own_limit();
    let limited = kernel.limited_group(gate);
    let given = limited.and_then(|group| decision.group(group.as_str()));
    GateView {
        target: record.target.clone(),
        command: (!record.command.is_empty()).then(|| record.command.join(" ")),
        uid: record.uid,
        parent: record.parent.clone(),
        rule: record.rule.clone(),
        allowance_cpus: given.and_then(|group| group.allowance_cpus),
        latency: latency_view(kernel, gate),
        // The loop's bucket holds nothing back while the scheduler's does.
        cap: (!runtime.sched_ext.holds())
            .then(|| cap_view(&runtime.control_loop, gate, now_ns))
            .flatten(),
        engine: engine(&runtime.sched_ext).to_owned(),
        sched_ext: sched_ext_counts(runtime, gate),
        own_limit: own.map(|own| limit_view(gate, &own)),
        terms: gate.terms.views().iter().map(term_view).collect(),
        age_seconds: now_ns.saturating_sub(record.made_ns) as f64 / 1e9,
        notes: record
            .notes
            .iter()
            .cloned()
            .chain(burst_notes(runtime, gate))
            .chain(subgroups_note(runtime, &record.name))
            .chain(sched_ext_notes(&runtime.sched_ext, &record.name))
            .collect(),
        ..figures
    }
}

fn limit_view(gate: &Gate, own: &Bandwidth) -> LimitView {
    let by_cap = gate.terms.cap_hard.value.ppt().map(hard_cap) == Some(*own);
    LimitView {
        by: (if by_cap { "cap_hard" } else { "quota" }).to_owned(),
        cpus: cpus(own.rate_ucpu().unwrap_or(u64::MAX)),
        quota_us: own.quota_us.unwrap_or(u64::MAX),
        period_us: own.period_us,
        burst_us: own.burst_us,
    }
}

fn term_view(view: &View) -> TermView {
    TermView {
        name: view.name.to_owned(),
        value: view.value.clone(),
        source: view.source.to_string(),
        overrode: view
            .overrode
            .iter()
            .map(|weaker| format!("{} ({})", weaker.value, weaker.source))
            .collect(),
    }
}
