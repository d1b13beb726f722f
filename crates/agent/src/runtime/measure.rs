//! What gates use, and whether they have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::Path;

use tidegate_api::{Decision, Limit};
use tidegate_cgroup::KernelFs;
use tidegate_cgroup::group::{CpuStat, GroupPath};
use tidegate_cgroup::sched::tasks::{TaskId, descendants};
use tidegate_terms::Class;

use crate::gates::{Attachment, Gate};
use crate::kernel::Kernel;
use crate::runtime::demand::is_empty;
use crate::runtime::mechanisms::subgroups::{has_subgroups, subgroups_stat, usage_with_subgroups};
use crate::runtime::scheduler_view::{limit_stat, sched_ext_cap};
use crate::runtime::{Runtime, held};
use crate::systemd::unit_of;

/// A gate that was measured within this is shown as it was then.
const FRESH_NS: u64 = 1_500_000_000;

/// The second poll of a gate may follow the first after this.
const FIRST_WINDOW_NS: u64 = 100_000_000;

/// A group that uses so much of each CPU that it is given wants all it gets.
const HUNGRY_UCPU: f64 = 850_000.0;

pub(crate) fn has_ended(runtime: &Runtime, gate: &Gate) -> bool {
    let kernel = &runtime.kernel;
    let process = gate.record.attachment.process();
    let has_exited =
        process.is_some_and(|(pid, start_ticks)| kernel.process_gone(pid, start_ticks));
    let is_left = |group| is_empty(kernel, group) && !has_subgroups(runtime, &gate.record.name);
    match &gate.record.attachment {
        Attachment::Observed { .. } => has_exited,
        Attachment::Owned { group } => is_left(group),
        Attachment::Moved { placement, .. } => has_exited && is_left(&placement.group),
        // A unit may come back; whether it does is looked at by itself.
        Attachment::InPlace { group } => unit_of(gate).is_none() && !kernel.groups.exists(group),
    }
}

/// Measures a gate for a call, where that was not done for a while.
pub(crate) fn measure_for_show(
    runtime: &Runtime,
    gate: &mut Gate,
    decision: &Decision,
    now_ns: u64,
) {
    // The first poll has no window, or a short one.
    let fresh_ns = match gate.held.view.window_seconds > 0.0 {
        true => FRESH_NS,
        false => FIRST_WINDOW_NS,
    };
    let at_ns = gate.held.at_ns;
    if at_ns == 0 || now_ns.saturating_sub(at_ns) >= fresh_ns {
        measure(runtime, gate, decision, now_ns);
    }
}

pub(crate) fn measure(runtime: &Runtime, gate: &mut Gate, decision: &Decision, now_ns: u64) {
    // A file of its group, from which the gate's own limit and the moving quota are judged.
    let placed = gate.record.attachment.placed();
    let stat = placed.and_then(|group| limit_stat(runtime, group).ok());
    let throttled = measure_use(runtime, gate, stat, now_ns);
    held::poll(runtime, gate, decision, stat, throttled, now_ns);
}

/// Returns the periods so far in which the gate's own limit throttled it, if it has one; under the
/// engine sched_ext and a cap, the times that a task was throttled.
fn measure_use(
    runtime: &Runtime,
    gate: &mut Gate,
    stat: Option<CpuStat>,
    now_ns: u64,
) -> Option<u64> {
    let kernel = &runtime.kernel;
    let usage_ns = match &gate.record.attachment {
        Attachment::Observed { pid, .. } if gate.record.is_of_thread() => cpu_ns(
            &*kernel.fs,
            &format!("/proc/{pid}/task/{pid}/stat"),
            14..=15,
        ),
        Attachment::Observed { .. } => {
            let of = |pid: &i32| cpu_ns(&*kernel.fs, &format!("/proc/{pid}/stat"), 14..=17);
            pids(kernel, gate).iter().map(of).sum()
        }
        attachment => usage_with_subgroups(runtime, &gate.record.name, attachment.group()),
    };
    let placed = gate.record.attachment.placed();
    let stat = match gate.own_limit() {
        Some(_) => stat,
        // Another program's quota counts, if it has held a period.
        None => {
            subgroups_stat(runtime, &gate.record.name).or(stat.filter(|stat| stat.nr_periods > 0))
        }
    };
    gate.stat = stat;
    let cap = placed.and_then(|group| sched_ext_cap(runtime, group));
    let in_place = matches!(gate.record.attachment, Attachment::InPlace { .. });
    let background_us = cap.map(|cap| cap.background_us);
    let background_before_us = std::mem::replace(&mut gate.background_us, background_us);
    let window_ns = now_ns.saturating_sub(gate.held.at_ns).max(1);
    let lately_us = background_us
        .zip(background_before_us)
        .map_or(0, |(now, before)| now.saturating_sub(before));
    gate.background_cpus = lately_us as f64 * 1e3 / window_ns as f64;
    // A cap for each process or task is no limit of the group.
    let throttles = cap
        .filter(|cap| {
            gate.own_limit().is_none() || cap.terms.scope == tidegate_sched_ext::CapScope::Group
        })
        .map_or(0, |cap| cap.throttles);
    let has_limit = stat.is_some() || cap.is_some();
    let throttled = has_limit.then(|| stat.map_or(0, |stat| stat.nr_throttled) + throttles);
    let Some(usage_ns) = usage_ns else {
        (gate.usage, gate.usage_cpus) = (None, None);
        return throttled;
    };
    let made_ns = gate.record.made_ns;
    let is_new = placed.is_some() && now_ns.saturating_sub(made_ns) < FRESH_NS;
    let at_first = (is_new && !in_place).then_some((made_ns, 0));
    if let Some((last_ns, last_usage_ns)) = gate.usage.replace((now_ns, usage_ns)).or(at_first) {
        let wall_ns = now_ns.saturating_sub(last_ns).max(1);
        let used_ns = usage_ns.saturating_sub(last_usage_ns);
        gate.usage_cpus = Some(used_ns as f64 / wall_ns as f64);
    }
    throttled
}

/// Whether anything in a limited group could run. With several of them, what each would use: all it
/// gets if its part of the allowance holds it back, it uses most of that or its use is unknown,
/// else a quarter more than it uses.
pub(crate) fn judge_demands(runtime: &Runtime, gates: &[Gate]) {
    let (kernel, control_loop) = (&runtime.kernel, &runtime.control_loop);
    let given = control_loop.lock().decided().groups;
    if given.is_empty() {
        return;
    }
    let could_run = gates.iter().filter(|gate| !gate.held.sleeps);
    let awake: BTreeSet<GroupPath> = could_run
        .filter_map(|gate| kernel.limited_group(gate))
        .collect();
    for target in control_loop.lock().quotas.targets() {
        target.is_awake = awake.contains(&target.group);
    }
    if given.len() < 2 {
        return;
    }
    let mut used: BTreeMap<GroupPath, (u64, bool)> = BTreeMap::new();
    for gate in gates {
        if let Some(group) = kernel.limited_group(gate) {
            let (used_ucpu, is_held) = used.entry(group).or_default();
            *used_ucpu += (gate.usage_cpus.unwrap_or(0.0) * 1e6) as u64;
            *is_held |= gate.usage_cpus.is_none()
                || matches!(
                    gate.held.view.limit,
                    Limit::Headroom | Limit::Tolerance | Limit::Weight | Limit::Root
                );
        }
    }
    let mut control = control_loop.lock();
    for target in control.quotas.targets() {
        let given = given.iter().find(|one| one.group == target.group.as_str());
        let Some(given_cpus) = given.and_then(|one| one.allowance_cpus) else {
            continue;
        };
        let (used_ucpu, is_held) = used.get(&target.group).copied().unwrap_or_default();
        let hungry = is_held || used_ucpu as f64 >= given_cpus * HUNGRY_UCPU;
        target.demand_ucpu = if hungry {
            u64::MAX
        } else {
            used_ucpu + used_ucpu / 4
        };
    }
}

/// The processes of a gate that were left where they are. A server's are those that it has started,
/// too; only an administrator names main, so that a user's many threads cost nobody a walk.
pub(crate) fn pids(kernel: &Kernel, gate: &Gate) -> Vec<i32> {
    let Attachment::Observed {
        pid, start_ticks, ..
    } = gate.record.attachment
    else {
        return Vec::new();
    };
    let mut pids = vec![pid];
    if gate.class() == Class::Main && !gate.record.only && !gate.record.is_of_thread() {
        let tid = pid;
        let family = descendants(&*kernel.fs, TaskId { tid, start_ticks }, 0);
        pids.extend(family.iter().map(|child| child.tid));
    }
    pids
}

/// The sum of these fields of a stat file: 14 and 15 are the CPU time of a thread, or of a process
/// with its threads, 16 and 17 that of its children that have ended; in clock ticks.
fn cpu_ns(fs: &dyn KernelFs, path: &str, fields: RangeInclusive<usize>) -> Option<u64> {
    let stat = fs.read(Path::new(path)).ok()?;
    let fields = fields.map(|field| tidegate_cgroup::target::stat_field(&stat, field));
    let ticks: u64 = fields.sum::<Option<u64>>()?;
    Some(ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second()))
}
