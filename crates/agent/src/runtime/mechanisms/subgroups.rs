//! Caps that count for each process or each task of a gate alone: groups of their own
//! (`tidegate_cgroup::subgroups`), kept up by four polls a second, or one where nothing changes.
//!
//! With a hard cap the groups lie in the gate's. A soft cap acts where branches divide, so with one
//! they lie beside it.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_api::{ApiError, ApiResult, ErrorKind};
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::discover::CgroupVersion;
use tidegate_cgroup::group::{CpuStat, GroupPath, GroupResult};
use tidegate_cgroup::subgroups::{
    Family, Per, SUBGROUPS_MAX, SweepBudget, SweepReport, dissolve, sweep,
};
use tidegate_engine::apply::JournalError;
use tidegate_engine::control::SoftCapped;
use tidegate_engine::limit::{caps_for_each, hard_cap};
use tidegate_engine::sync::lock;
use tracing::{debug, warn};

use crate::errors::{not_recorded, of_group};
use crate::gates::budget::{check_subgroups, subgroups_full, subgroups_left};
use crate::gates::{Attachment, Gate};
use crate::kernel::Kernel;
use crate::runtime::Runtime;

const BUSY: Duration = Duration::from_millis(250);
const QUIET: Duration = Duration::from_secs(1);
/// Each move waits for the kernel, some milliseconds: so many a poll.
const MOVES_PER_POLL: usize = 32;
/// What is there when the cap is set is to be under it when that returns.
const MOVES_AT_FIRST: usize = 128;
const START: &str = "each alone: ";

struct SplitGate {
    gate: String,
    /// Its groups count against this user's budget.
    user: u32,
    family: Family,
    limit: Option<Bandwidth>,
    soft_ppt: Option<u32>,
    last: SweepReport,
}

/// The gates with a cap for each process or task, and the groups that the loop moves into the
/// background.
#[derive(Default)]
pub struct Subgroups {
    gates: Vec<SplitGate>,
    for_all: Vec<SoftCapped>,
    for_each: Vec<SoftCapped>,
    told: Vec<SoftCapped>,
}

impl Subgroups {
    fn find(&mut self, gate: &str) -> Option<&mut SplitGate> {
        self.gates.iter_mut().find(|one| one.gate == gate)
    }

    /// How many groups each user's gates have, but for this one.
    fn held_beside(&self, gate: &str) -> impl Iterator<Item = (u32, usize)> {
        let others = self.gates.iter().filter(move |one| one.gate != gate);
        others.map(|one| (one.user, one.last.subgroups))
    }
}

pub(crate) fn period(has_new: bool) -> Duration {
    if has_new { BUSY } else { QUIET }
}

pub(crate) fn poll(runtime: &Runtime) -> bool {
    let kernel = &runtime.kernel;
    let mut subgroups = lock(&runtime.subgroups);
    let mut busy = false;
    for index in 0..subgroups.gates.len() {
        let one = &subgroups.gates[index];
        let groups = subgroups_left(one.user, subgroups.held_beside(&one.gate));
        let split = &mut subgroups.gates[index];
        let swept = sweep_subgroups(kernel, split, MOVES_PER_POLL, groups);
        busy |= swept.moved > 0 || swept.more;
    }
    if subgroups.gates.iter().any(|one| one.soft_ppt.is_some()) {
        renew_soft_caps(runtime, &mut subgroups);
    }
    busy
}

/// Soft caps for each lie beside the gate's group, so work leaves that and every limit on it:
/// refused where it may have one.
pub(crate) fn check_beside(gate: &Gate, attachment: &Attachment) -> ApiResult<()> {
    if !matches!(caps_for_each(&gate.terms), Some((_, _, Some(_)))) {
        return Ok(());
    }
    let why = if !matches!(attachment, Attachment::Owned { .. }) {
        "it was running before, and would leave the limits on its own group"
    } else if gate.is_limited() {
        "side work would leave the idle class and the side root's quota"
    } else if gate.own_limit().is_some() {
        "each would leave the gate's own quota"
    } else {
        return Ok(());
    };
    let detail = format!(
        "cap_scope: gate {}: a soft cap cannot count for each {} here: {why}",
        gate.record.name, gate.terms.cap_scope.value
    );
    Err(ApiError::new(ErrorKind::Unsupported, detail).with_remedy(format!(
        "take cap_scope=group or a hard cap, or start it with: tidegate run --cap-soft RATE --cap-scope {} (no quota, \
         not side)",
        gate.terms.cap_scope.value
    )))
}

/// Gives each process or task of the gate its own cap, where that is asked for.
pub(crate) fn enforce_subgroups(runtime: &Runtime, gate: &mut Gate) -> ApiResult<()> {
    let kernel = &runtime.kernel;
    gate.record.notes.retain(|note| !note.starts_with(START));
    let Some(group) = gate.record.attachment.placed().cloned() else {
        return Ok(());
    };
    let Some((asked, hard_ppt, soft_ppt)) = caps_for_each(&gate.terms) else {
        return unite(runtime, gate);
    };
    if runtime.sched_ext.holds() {
        gate.record.notes.push(format!(
            "{START}by the scheduler, at each one's own start; when that is off, in a group for each"
        ));
        return unite(runtime, gate);
    }
    let user = gate.record.charged_to();
    if runtime.journal().family_of(&group).is_none() {
        let subgroups = lock(&runtime.subgroups);
        check_subgroups(user, subgroups.held_beside(&gate.record.name))?;
    }
    let family = family(kernel, &group, asked, soft_ppt.is_some())?;
    let known = runtime.journal().family_of(&group);
    if known.is_some_and(|known| known != family) {
        unite(runtime, gate)?;
    }
    runtime
        .journal()
        .record_subgroups(&gate.record.name, &family, gate.own_fallback())
        .map_err(not_recorded)?;
    let mut split = SplitGate {
        gate: gate.record.name.clone(),
        user,
        limit: hard_ppt.map(|ppt| kernel.as_kernel_has(hard_cap(ppt))),
        soft_ppt,
        last: SweepReport::default(),
        family,
    };
    let mut subgroups = lock(&runtime.subgroups);
    subgroups.gates.retain(|one| one.gate != split.gate);
    for (_, subgroup) in split.family.list(&kernel.groups).map_err(of_group)? {
        furnish(kernel, &split, &subgroup).map_err(of_group)?;
        // The loop may have had it out of the background.
        runtime.control().soft_caps.invalidate(&subgroup);
    }
    let groups = subgroups_left(user, subgroups.held_beside(&split.gate));
    let swept = sweep_subgroups(kernel, &mut split, MOVES_AT_FIRST, groups);
    if let (Some(why), 0) = (&swept.refused, swept.subgroups) {
        let message = format!("cap_scope: gate {}: {why}", split.gate);
        return Err(ApiError::new(ErrorKind::Unsupported, message));
    }
    if asked == Per::Task && split.family.per == Per::Process {
        gate.record.notes.push(format!(
            "{START}cgroup v2 keeps the threads of a process together, so for its soft cap each process counts, not each task"
        ));
    }
    subgroups.gates.push(split);
    renew_soft_caps(runtime, &mut subgroups);
    Ok(())
}

pub(crate) fn withdraw_subgroups(runtime: &Runtime, gate: &Gate) -> Vec<String> {
    let kernel = &runtime.kernel;
    let group = gate.record.attachment.group();
    let mut subgroups = lock(&runtime.subgroups);
    subgroups.gates.retain(|one| one.gate != gate.record.name);
    let Some(family) = runtime.journal().family_of(group) else {
        return Vec::new();
    };
    renew_soft_caps(runtime, &mut subgroups);
    // Without the journal, for the loop waits for it: moving takes long on a full machine.
    let why = match dissolve(&kernel.groups, &family) {
        Ok(true) => None,
        Ok(false) => Some("its processes fork faster than they can be moved back".to_owned()),
        Err(error) => Some(error.to_string()),
    };
    if why.is_none() {
        runtime.journal().united(&family);
    }
    let gate = &gate.record.name;
    let line = |why| {
        format!("cap_scope: gate {gate}: some are left in groups of their own: {why}; try again")
    };
    why.map(line).into_iter().collect()
}

/// The same, where what comes next needs them all in the gate's group.
fn unite(runtime: &Runtime, gate: &Gate) -> ApiResult<()> {
    match withdraw_subgroups(runtime, gate).pop() {
        Some(left) => Err(ApiError::new(ErrorKind::Busy, left)),
        None => Ok(()),
    }
}

fn family(kernel: &Kernel, group: &GroupPath, asked: Per, beside: bool) -> ApiResult<Family> {
    let v2 = kernel.groups.version() == CgroupVersion::V2;
    let parent = group.parent().filter(|_| beside);
    let is_inside = parent.is_none();
    let threaded = v2 && (is_inside || kernel.groups.is_threaded(group));
    let per = match asked {
        Per::Task if v2 && !threaded => Per::Process,
        asked => asked,
    };
    let letter = match per {
        Per::Process => 'p',
        Per::Task => 't',
    };
    let prefix = kernel.run_dir.prefix();
    let stem = if is_inside {
        format!("{prefix}-{letter}")
    } else if group.name().starts_with(&format!("{prefix}-")) {
        // No gate's name has this character.
        format!("{}={letter}", group.name())
    } else {
        format!("{prefix}-{}={letter}", group.name())
    };
    let family = Family {
        group: group.clone(),
        dir: parent.unwrap_or_else(|| group.clone()),
        stem,
        per,
        threaded,
        yields: beside,
    };
    // Whether the names can be had.
    family.path_of(i32::MAX).map_err(of_group)?;
    Ok(family)
}

fn furnish(kernel: &Kernel, split: &SplitGate, subgroup: &GroupPath) -> GroupResult<()> {
    if let Some(limit) = split.limit {
        // On v1 the quotas give way to those that move above them.
        if kernel.groups.version() == CgroupVersion::V1 {
            match kernel.journal().set_subgroup_cap(subgroup, limit) {
                Err(JournalError::Group(error)) => return Err(error),
                Err(error) => warn!("{error}"),
                Ok(()) => {}
            }
        } else if kernel.groups.bandwidth(subgroup)? != limit {
            kernel.groups.set_bandwidth(subgroup, None, limit)?;
        }
    }
    if split.soft_ppt.is_some() {
        // A bucket begins empty. The journal knows subgroups by their family.
        match kernel.journal().set_background(subgroup, true) {
            Err(JournalError::Group(error)) => return Err(error),
            Err(error) => warn!("{error}"),
            Ok(()) => {}
        }
    }
    Ok(())
}

fn sweep_subgroups(
    kernel: &Kernel,
    split: &mut SplitGate,
    moves: usize,
    groups: usize,
) -> SweepReport {
    let swept = {
        let known = &*split;
        let mut furnish = |subgroup: &GroupPath| furnish(kernel, known, subgroup);
        let from = known.last.stopped_at;
        let budget = SweepBudget { moves, groups };
        sweep(&kernel.groups, &known.family, budget, from, &mut furnish)
    };
    match swept {
        Ok(swept) => {
            if split.limit.is_some() && !swept.removed.is_empty() {
                kernel.journal().end_subgroup_caps(&swept.removed);
            }
            split.last = swept;
        }
        // It is ending, or housekeeping will tell of it.
        Err(error) => debug!("gate {}: {error}", split.gate),
    }
    split.last.clone()
}

pub(crate) fn set_soft_caps(runtime: &Runtime, for_all: Vec<SoftCapped>) {
    let mut subgroups = lock(&runtime.subgroups);
    subgroups.for_all = for_all;
    renew_soft_caps(runtime, &mut subgroups);
}

/// Tells the loop which groups have a soft cap now, and opens their meters.
fn renew_soft_caps(runtime: &Runtime, subgroups: &mut Subgroups) {
    let kernel = &runtime.kernel;
    let mut for_each = Vec::new();
    for one in &subgroups.gates {
        let Some(soft_ppt) = one.soft_ppt else {
            continue;
        };
        let there = one.family.list(&kernel.groups).unwrap_or_default();
        let capped = |(_, group)| SoftCapped { group, soft_ppt };
        for_each.extend(there.into_iter().map(capped));
    }
    subgroups.for_each = for_each;
    let capped = subgroups.for_all.iter().chain(&subgroups.for_each);
    let capped: Vec<SoftCapped> = capped.cloned().collect();
    // The loop waits for either lock, so what it knows already is not told again.
    if subgroups.told == capped && runtime.control().soft_caps.count() == capped.len() {
        return;
    }
    // Background for good needs no meter.
    let metered = capped.iter().filter(|one| one.soft_ppt > 0);
    let metered: BTreeSet<GroupPath> = metered.map(|one| one.group.clone()).collect();
    let usage_file = |group: &GroupPath| Some(kernel.sensed(group)?.usage);
    if let Err(error) = lock(&runtime.control_loop.meters).set(&metered, usage_file) {
        debug!("{error}");
    }
    let now_ns = kernel.clock.now_ns();
    runtime.control().soft_caps.set(&capped, now_ns);
    subgroups.told = capped;
}

pub(crate) fn has_subgroups(runtime: &Runtime, gate: &str) -> bool {
    let kernel = &runtime.kernel;
    let mut subgroups = lock(&runtime.subgroups);
    let Some(split) = subgroups.find(gate) else {
        return false;
    };
    let there = split.family.list(&kernel.groups).unwrap_or_default();
    let is_populated = |group: &GroupPath| kernel.groups.populated(group).unwrap_or(false);
    there.iter().any(|(_, subgroup)| is_populated(subgroup))
}

pub(crate) fn usage_with_subgroups(
    runtime: &Runtime,
    gate: &str,
    group: &GroupPath,
) -> Option<u64> {
    let kernel = &runtime.kernel;
    let used = |group: &GroupPath| match kernel.groups.usage_ns(group) {
        Err(error) if error.is_gone() && !kernel.groups.exists(group) => Some(0),
        used_ns => used_ns.ok().flatten(),
    };
    let own_ns = used(group)?;
    let each_ns = beside(runtime, gate, group);
    let each_ns = each_ns.iter().map(used);
    Some(own_ns + each_ns.sum::<Option<u64>>()?)
}

/// The groups for single processes or tasks of the gate that are not in its own group.
pub(crate) fn beside(runtime: &Runtime, gate: &str, group: &GroupPath) -> Vec<GroupPath> {
    let mut subgroups = lock(&runtime.subgroups);
    let beside = subgroups.find(gate).filter(|one| one.family.dir != *group);
    let there = beside.and_then(|one| one.family.list(&runtime.kernel.groups).ok());
    let there = there.unwrap_or_default().into_iter();
    there.map(|(_, subgroup)| subgroup).collect()
}

/// What the kernel counts where a hard cap is for each alone, over the groups that are there now.
pub(crate) fn subgroups_stat(runtime: &Runtime, gate: &str) -> Option<CpuStat> {
    let kernel = &runtime.kernel;
    let mut subgroups = lock(&runtime.subgroups);
    let split = subgroups.find(gate).filter(|one| one.limit.is_some())?;
    let there = split.family.list(&kernel.groups).ok()?;
    let stats = there
        .iter()
        .filter_map(|(_, subgroup)| kernel.groups.cpu_stat(subgroup).ok());
    Some(stats.fold(CpuStat::default(), CpuStat::plus))
}

pub(crate) fn subgroups_note(runtime: &Runtime, gate: &str) -> Option<String> {
    let mut subgroups = lock(&runtime.subgroups);
    let split = subgroups.find(gate)?;
    let what = match split.family.per {
        Per::Process => "processes",
        Per::Task => "tasks",
    };
    let last = &split.last;
    let mut note = format!("{START}{} groups for {what}", last.subgroups);
    if last.sharing {
        let most = match last.subgroups >= SUBGROUPS_MAX {
            true => format!("a gate has {SUBGROUPS_MAX} at most"),
            false => subgroups_full(split.user),
        };
        note.push_str(&format!("; {most}, so some share one"));
    }
    if !last.real_time.is_empty() {
        let tids = last.real_time.iter().take(8).map(ToString::to_string);
        let tids: Vec<String> = tids.collect();
        note.push_str(&format!("; real-time, left alone: {}", tids.join(", ")));
    }
    if let Some(why) = &last.refused {
        note.push_str(&format!("; {why}"));
    }
    Some(note)
}

/// Without an agent subgroups with a soft cap stay in the background.
pub(crate) fn leave_subgroups(runtime: &Runtime, gate: &str) {
    let mut subgroups = lock(&runtime.subgroups);
    let Some(split) = subgroups.find(gate).filter(|one| one.soft_ppt.is_some()) else {
        return;
    };
    let there = split.family.list(&runtime.kernel.groups);
    for (_, subgroup) in there.unwrap_or_default() {
        runtime.control().soft_caps.drop(&subgroup);
        if let Err(error) = runtime.journal().set_background(&subgroup, true) {
            warn!("{error}");
        }
    }
}
