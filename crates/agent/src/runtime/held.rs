//! Which limit holds a gate back, by the kernel's counts between two polls and what the control
//! step decided.

use tidegate_api::{Decision, HeldView, Limit};
use tidegate_cgroup::group::{CpuStat, GroupPath};
use tidegate_cgroup::target::threads_of;
use tidegate_engine::held::{Counted, Limits};
use tidegate_engine::limit::{caps_for_each, hard_cap};

use crate::gates::{Attachment, Gate};
use crate::kernel::Kernel;
use crate::runtime::mechanisms::subgroups::beside;
use crate::runtime::scheduler_view::{limit_stat, sched_ext_cap};
use crate::runtime::{Runtime, measure};

const A_THOUSANDTH: f64 = 0.001;

const DEPTH: u32 = 4;

/// Polls a gate after its use, the `stat` of its group and its own limit's throttled periods were
/// measured.
pub(crate) fn poll(
    runtime: &Runtime,
    gate: &mut Gate,
    decision: &Decision,
    stat: Option<CpuStat>,
    throttled_by_own: Option<u64>,
    now_ns: u64,
) {
    let kernel = &runtime.kernel;
    let state = &gate.held;
    let window_ns = match state.at_ns {
        0 => 0,
        at_ns => now_ns.saturating_sub(at_ns),
    };
    let group = gate.record.attachment.placed().cloned();
    let moving = kernel.limited_group(gate);
    let throttled = |group: &GroupPath| {
        let stat = limit_stat(runtime, group);
        stat.map_or(0, |stat| stat.nr_throttled)
    };
    // The group of a side gate that is limited in its place has one quota, which moves.
    let is_own = group.is_some() && group != moving;
    let own = throttled_by_own.filter(|_| is_own).unwrap_or(0);
    let beside = match &group {
        Some(group) => beside(runtime, &gate.record.name, group),
        None => Vec::new(),
    };
    let mut tids = tids(kernel, gate);
    tids.extend(
        beside
            .iter()
            .flat_map(|group| kernel.tids_below(group, DEPTH)),
    );
    let tasks = gate.held.tasks.poll(&*kernel.fs, &tids, window_ns);
    if gate.usage.is_none() && window_ns > 0 {
        // Its group has no account (v1, another program's): its tasks have.
        let used_cpus = tasks.run_ns as f64 / window_ns as f64;
        gate.usage_cpus = tasks.is_complete.then_some(used_cpus);
    }
    let lately = |now: u64, before: u64| match window_ns {
        0 => 0,
        _ => now.saturating_sub(before),
    };
    // What throttles a group of several gates does not hold back one that sleeps: it is not read.
    let runs = gate.usage_cpus.is_some_and(|cpus| cpus > A_THOUSANDTH);
    let is_awake = tasks.runnable > 0 || tasks.is_partial || runs;
    gate.held.sleeps = !is_awake;
    gate.held.has_tasks = !tids.is_empty();
    let root = match &moving {
        Some(moving) if group.as_ref() == Some(moving) => stat.map(|stat| stat.nr_throttled),
        Some(moving) if is_awake => Some(throttled(moving)),
        _ => None,
    };
    let parent = is_awake.then(|| {
        let groups = above(kernel, gate.record.attachment.group(), moving.as_ref());
        groups.iter().map(throttled).sum()
    });
    let if_awake = |now: Option<u64>, before: Option<u64>| match now.zip(before) {
        Some((now, before)) if is_awake => lately(now, before),
        _ => 0,
    };
    let (is_above_soft_cap, background_ns) = soft_cap(runtime, gate, &beside);
    let counted = Counted {
        window_ns,
        is_frozen: group.is_some_and(|group| kernel.groups.is_frozen(&group).unwrap_or(false)),
        is_above_soft_cap: is_awake
            && (is_above_soft_cap || background_ns > gate.held.background_ns),
        own_throttled: lately(own, gate.held.own),
        root_throttled: if_awake(root, gate.held.root),
        parent_throttled: if_awake(parent, gate.held.parent),
        tasks,
    };
    let limits = limits(runtime, gate, decision, moving.as_ref());
    let seconds = |ns: u64| ns as f64 / 1e9;
    let limit = counted.limit(&limits);
    gate.held.view = HeldView {
        limit,
        meaning: limit.meaning().to_owned(),
        window_seconds: seconds(window_ns),
        own_throttled_periods: counted.own_throttled,
        root_throttled_periods: counted.root_throttled,
        parent_throttled_periods: counted.parent_throttled,
        runnable_tasks: tasks.runnable,
        run_delay_seconds: seconds(tasks.delay_ns),
        run_seconds: seconds(tasks.run_ns),
    };
    (gate.held.at_ns, gate.held.own) = (now_ns, own);
    (gate.held.root, gate.held.parent) = (root, parent);
    gate.held.background_ns = background_ns;
}

fn limits(
    runtime: &Runtime,
    gate: &Gate,
    decision: &Decision,
    moving: Option<&GroupPath>,
) -> Limits {
    let is_left_alone = |group: Option<&GroupPath>| {
        group.is_some_and(|group| runtime.control().quotas.is_left_alone(group))
    };
    let own = match gate.own_limit() {
        Some(_) if is_left_alone(gate.record.attachment.placed()) => Limit::Outside,
        Some(own) if gate.terms.cap_hard.value.ppt().map(hard_cap) == Some(own) => Limit::Cap,
        Some(_) => Limit::Quota,
        None if caps_for_each(&gate.terms).is_some() => Limit::Cap,
        None => Limit::Outside,
    };
    let Some(moving) = moving else {
        return Limits {
            own,
            ..Limits::default()
        };
    };
    let is_moving_left_alone = is_left_alone(Some(moving));
    let (second, is_only) = {
        let control = runtime.control();
        let is_only = control.quotas.is_of_one();
        (control.meter.second(), is_only)
    };
    let given = decision.group(moving.as_str());
    let moving = match given.map(|group| group.limit) {
        _ if is_moving_left_alone => Limit::Outside,
        // The moving quota equals the gate's own limit.
        Some(Limit::Quota) => own,
        limit => limit.unwrap_or_default(),
    };
    let side_cpus = second.cpus(second.side_ns);
    let main_cpus = second.cpus(second.busy_ns.saturating_sub(second.side_ns));
    let is_idle_class = decision.limit == Limit::IdleClass;
    let own_ucpu = gate.own_limit().and_then(|own| own.rate_ucpu());
    let used_and_own = gate.usage_cpus.zip(own_ucpu);
    let is_far_from_own = used_and_own.is_some_and(|(used, own)| used * 2e6 < own as f64);
    Limits {
        own,
        moving,
        side: decision.limit,
        is_far_from_own,
        is_shared: gate.usage_cpus.is_some_and(|own_cpus| {
            let others_cpus = side_cpus - own_cpus;
            !is_only
                && others_cpus > 0.01
                && others_cpus * 2.0 >= own_cpus
                && (!is_idle_class || others_cpus > main_cpus)
        }),
    }
}

pub(crate) fn above(
    kernel: &Kernel,
    group: &GroupPath,
    moving: Option<&GroupPath>,
) -> Vec<GroupPath> {
    let around = std::iter::successors(group.parent(), GroupPath::parent);
    around
        .take_while(|above| !above.is_root())
        .filter(|above| moving.is_none() || *above != kernel.side_root())
        .filter(|above| Some(above) != moving)
        .collect()
}

/// Whether the engine that keeps the soft cap counts the gate, or one of its processes or tasks, as
/// above it, and for how long they have been in the background so far.
fn soft_cap(runtime: &Runtime, gate: &Gate, beside: &[GroupPath]) -> (bool, u64) {
    let group = gate.record.attachment.group();
    match sched_ext_cap(runtime, group) {
        // By what it got above the cap since the last poll, or by what its bucket owes now.
        Some(cap) => {
            let is_above = |soft_ppt| {
                soft_ppt == 0 || cap.soft_level_us < 0 || gate.background_cpus > A_THOUSANDTH
            };
            let is_above = cap.terms.soft_ppt.is_some_and(is_above);
            (is_above, gate.held.background_ns)
        }
        None if runtime.sched_ext.holds() => (false, gate.held.background_ns),
        None => {
            let control = runtime.control();
            let groups = beside.iter().chain([group]);
            let stats = groups.filter_map(|group| control.soft_caps.stats(group));
            stats.fold((false, 0), |(is_above, ns), (stats, soft_ppt)| {
                let is_this = soft_ppt == 0 || stats.background_since_ns.is_some();
                (is_above || is_this, ns + stats.in_background_ns)
            })
        }
    }
}

fn tids(kernel: &Kernel, gate: &Gate) -> Vec<i32> {
    match &gate.record.attachment {
        Attachment::Observed { .. } => {
            let pids = measure::pids(kernel, gate);
            pids.iter()
                .flat_map(|pid| threads_of(&*kernel.fs, *pid))
                .collect()
        }
        attachment => kernel.tids_below(attachment.group(), DEPTH),
    }
}
