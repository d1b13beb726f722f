//! Latency hints of one gate: its tasks get a slice of their own (before Linux 6.12: SCHED_BATCH),
//! and give it back.
//!
//! Tasks that are forked inherit it from the kernel, also across exec. What enters the gate
//! otherwise, and what is not to inherit it, is found by the sweep (`hint_sweep`). The kernel's own
//! `SCHED_FLAG_RESET_ON_FORK` is not used for `latency_inherit = no`: it would also take a negative
//! nice level and utilisation clamps from children, and the hint from new threads of the process
//! itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_api::{ApiError, ApiResult, ErrorKind};
use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::sched::hint::{self, Apart, BEFORE_MAX, Before, Latency};
use tidegate_cgroup::sched::tasks::{self, TaskId, Whose};
use tidegate_cgroup::sched::{HintSetting, SLICES_SINCE, Support, compile, probe};
use tidegate_cgroup::{KernelFs, KfsError};
use tidegate_engine::apply::HintPlace;
use tidegate_engine::ledger::{Change, Entry};
use tidegate_terms::Class;
use tracing::warn;

use crate::errors::{internal, of_group, refuse};
use crate::gates::{Attachment, Gate, HintCounts, HintRound, HintState};
use crate::kernel::Kernel;

/// Processes of one gate whose children are not to inherit the hint: the ledger has each of them.
const ONLY_MAX: usize = 4_096;

#[derive(Default)]
pub(crate) struct Passed {
    pub counts: HintCounts,
    pub given: usize,
    pub denied: Option<KfsError>,
}

/// The hint of side work for which none was asked, on a kernel that has one queue a CPU: there a
/// task that wakes waits until the slice of the one that runs is over, of whatever group.
const SHORT_TURNS: i8 = -20;

pub(crate) fn has_short_turns(kernel: &Kernel, gate: &Gate) -> bool {
    kernel.has_short_turns && gate.class() == Class::Side && gate.terms.latency.is_default()
}

/// Gives the gate's tasks their latency hint; takes back one that is not asked for any more.
pub(crate) fn enforce_hints(kernel: &Kernel, gate: &mut Gate) -> ApiResult<()> {
    if has_short_turns(kernel, gate) {
        if let Err(error) = enforce_hint(kernel, gate, Some(SHORT_TURNS)) {
            warn!("gate {}: its turns stay long: {error}", gate.record.name);
        }
        return Ok(());
    }
    // A hint of 0 that was asked for keeps the hint of a group above from these tasks.
    let asked = !gate.terms.latency.is_default();
    let hint = asked.then(|| gate.terms.latency.value.hint());
    enforce_hint(kernel, gate, hint)
}

fn enforce_hint(kernel: &Kernel, gate: &mut Gate, hint: Option<i8>) -> ApiResult<()> {
    let standing = kernel.journal().latency_of(&gate.record.name);
    if hint.is_none() && standing.is_none() {
        gate.hint = None;
        return Ok(());
    }
    let (group, whose) = whose(gate);
    let inherit = inherits(gate);
    let fits = |entry: &Entry| match &entry.change {
        Change::Latency(latency) => {
            let same = Some(latency.hint) == hint && latency.only.is_none() == inherit;
            // A unit that was started again has another group at the same place.
            let there = whose != Whose::Group
                || kernel
                    .groups
                    .id(&group)
                    .is_ok_and(|id| id == entry.group_id);
            same && there && latency.whose == whose && entry.group == group
        }
        _ => false,
    };
    let known = match standing {
        Some(entry) if fits(&entry) => Some(entry),
        Some(entry) => {
            undo_hint(kernel, &entry)?;
            None
        }
        None => None,
    };
    gate.hint = None;
    let Some(hint) = hint else {
        return Ok(());
    };
    let support = probe(&*kernel.fs).map_err(|error| refuse(ErrorKind::Unsupported, error))?;
    if hint == 0 && !support.slices {
        return Ok(());
    }
    let entry = match known {
        Some(entry) => entry,
        None => begin_hint(kernel, gate, hint, (&group, whose), &support)?,
    };
    gate.hint = Some(give_hint(kernel, entry, &support)?);
    Ok(())
}

/// A new hint, in the journal before any task has it.
fn begin_hint(
    kernel: &Kernel,
    gate: &Gate,
    hint: i8,
    (group, whose): (&GroupPath, Whose),
    support: &Support,
) -> ApiResult<Entry> {
    let Some(ours) = compile(hint, support) else {
        let detail = format!(
            "latency: {hint}: kernel {} gives tasks no slices of their own, and SCHED_BATCH stands for hints above 0 only",
            kernel.machine.kernel
        );
        return Err(ApiError::new(ErrorKind::Unsupported, detail)
            .with_remedy(format!("boot {SLICES_SINCE} or newer, or leave it out")));
    };
    let name = &gate.record.name;
    let places = kernel.journal().hints();
    let apart = apart_from(&*kernel.fs, &places, name, group, whose);
    let tids = hinted_tids(kernel, group, whose, &apart)?;
    let inherited = hints_around(&places, name, group, whose);
    let before = note_before(kernel, &tids, (hint, ours), support, &inherited)?;
    let only = if inherits(gate) {
        None
    } else {
        Some(only_these(kernel, whose, &tids)?)
    };
    let run = matches!(gate.record.attachment, Attachment::Owned { .. });
    let latency = Latency {
        hint,
        ours,
        whose,
        run,
        only,
        before,
    };
    kernel
        .journal()
        .record_hint(group, name, latency, gate.own_fallback())
        .map_err(internal)
}

/// Whether what these tasks fork is to have the hint: without one there is nothing to inherit.
fn inherits(gate: &Gate) -> bool {
    gate.terms.latency_inherit.value.0 || gate.terms.latency.value.hint() == 0
}

/// The processes that are to have the hint, where those that they fork are not.
fn only_these(kernel: &Kernel, whose: Whose, tids: &[i32]) -> ApiResult<Vec<TaskId>> {
    let only = match whose {
        Whose::Process(process) => vec![process],
        Whose::Thread(thread) => {
            let detail = "latency_inherit: what a thread starts is not told from what others start";
            return Err(
                ApiError::new(ErrorKind::Unsupported, detail).with_remedy(format!(
                    "leave it out, or name its process instead of tid:{}",
                    thread.tid
                )),
            );
        }
        Whose::Group => tasks::processes(&*kernel.fs, tids).into_iter().collect(),
    };
    if only.len() > ONLY_MAX {
        let detail = format!(
            "latency_inherit: {} processes would have to be told from what they fork, and {ONLY_MAX} can",
            only.len()
        );
        return Err(ApiError::new(ErrorKind::Unsupported, detail)
            .with_remedy("leave it out, or name a smaller group"));
    }
    Ok(only)
}

fn hinted_tids(
    kernel: &Kernel,
    group: &GroupPath,
    whose: Whose,
    apart: &Apart,
) -> ApiResult<Vec<i32>> {
    let listed = tasks::list(&kernel.groups, group, whose, &apart.groups, hint::TASKS_MAX);
    let mut tids = listed.map_err(of_group)?.tids;
    tids.retain(|tid| !apart.tids.contains(tid));
    Ok(tids)
}

/// What tasks have that is not the default. What they have by a hint around this one will come
/// again.
fn note_before(
    kernel: &Kernel,
    tids: &[i32],
    (hint, ours): (i8, HintSetting),
    support: &Support,
    inherited: &[HintSetting],
) -> ApiResult<Vec<Before>> {
    let seen = hint::inspect(&*kernel.fs, tids, ours, support).map_err(|error| denied(&error))?;
    // With a hint of 0 these are those that have nothing of their own.
    let same = seen.ours.iter().filter(|_| hint != 0);
    let same = same.map(|tid| (*tid, ours));
    let before = same
        .chain(seen.others.iter().copied())
        .filter(|(_, was)| !inherited.contains(was))
        .filter_map(|(tid, was)| {
            let task = TaskId::now(&*kernel.fs, tid)?;
            Some(Before { task, was })
        });
    Ok(before.take(BEFORE_MAX).collect())
}

/// Passes over the tasks until none is without the hint. A task with another slice that comes
/// meanwhile is left alone.
fn give_hint(kernel: &Kernel, entry: Entry, support: &Support) -> ApiResult<HintState> {
    let Change::Latency(latency) = entry.change else {
        return Err(internal("latency: it is not in the journal"));
    };
    let (name, group) = (entry.gate, entry.group);
    let places = kernel.journal().hints();
    let apart = apart_from(&*kernel.fs, &places, &name, &group, latency.whose);
    let inherited = hints_around(&places, &name, &group, latency.whose);
    let mut counts = HintCounts::default();
    for _ in 0..hint::PASSES_MAX {
        let tids = match hinted_tids(kernel, &group, latency.whose, &apart) {
            Err(error) if error.kind == ErrorKind::NotFound => break,
            tids => tids?,
        };
        let passed = pass_hint(kernel, &tids, &latency, support, &inherited, None)?;
        counts = passed.counts;
        if let Some(error) = passed.denied
            && counts.with == 0
        {
            return Err(denied(&error));
        }
        if passed.given == 0 {
            break;
        }
    }
    Ok(HintState {
        latency: Arc::new(latency),
        group,
        at_boot_ns: entry.at_boot_ns,
        base_ns: support.base_ns,
        round_ns: None,
        every_ns: 0,
        counts,
        round: HintRound::default(),
        given: BTreeMap::new(),
    })
}

/// Gives the hint, in one pass, to tasks without it and to tasks whose other slice is recorded. The
/// sweep passes `given`, and then ignores the record.
pub(crate) fn pass_hint(
    kernel: &Kernel,
    tids: &[i32],
    latency: &Latency,
    support: &Support,
    inherited: &[HintSetting],
    mut given: Option<&mut BTreeMap<i32, (TaskId, u8)>>,
) -> ApiResult<Passed> {
    let fs = &*kernel.fs;
    let seen = hint::inspect(fs, tids, latency.ours, support).map_err(|error| denied(&error))?;
    let mut passed = Passed {
        counts: HintCounts::of(&seen),
        ..Passed::default()
    };
    let is_sweep = given.is_some();
    let lacking = seen.lacking.iter().map(|tid| (*tid, None));
    let others = seen.others.iter().map(|(tid, was)| (*tid, Some(*was)));
    for (tid, other) in lacking.chain(others) {
        let takes = other.is_none_or(|was| !is_sweep || inherited.contains(&was));
        let Some(task) = TaskId::now(fs, tid).filter(|_| takes) else {
            continue;
        };
        let noted = || latency.before.iter().any(|before| before.task == task);
        if other.is_some_and(|was| !inherited.contains(&was)) && !noted() {
            continue;
        }
        if let Some(given) = given.as_deref_mut() {
            let times = given.get(&tid).filter(|(before, _)| *before == task);
            let times = times.map_or(0, |(_, times)| *times);
            if times >= 2 {
                // Taken from it twice: that is another writer's intent.
                passed.counts.others += 1;
                continue;
            }
            given.insert(tid, (task, times + 1));
        }
        match hint::give(fs, tid, latency.ours) {
            Ok(()) => {
                passed.given += 1;
                passed.counts.with += 1;
                passed.counts.others -= u64::from(other.is_some());
            }
            Err(error) if error.is_gone() => {}
            // It has become real-time since.
            Err(error) if error.errno == libc::EINVAL => passed.counts.real_time += 1,
            Err(error) => {
                passed.counts.refused += 1;
                passed.denied = Some(error);
            }
        }
    }
    Ok(passed)
}

pub(crate) fn withdraw_hints(kernel: &Kernel, gate: &Gate) -> Vec<String> {
    let standing = kernel.journal().latency_of(&gate.record.name);
    match standing.map(|entry| undo_hint(kernel, &entry)) {
        Some(Ok(left)) => left,
        Some(Err(error)) => vec![error.to_string()],
        None => Vec::new(),
    }
}

fn undo_hint(kernel: &Kernel, entry: &Entry) -> ApiResult<Vec<String>> {
    let Change::Latency(latency) = &entry.change else {
        return Ok(Vec::new());
    };
    let places = kernel.journal().hints();
    let (gate, group) = (&entry.gate, &entry.group);
    let apart = apart_from(&*kernel.fs, &places, gate, group, latency.whose);
    let at_ns = entry.at_boot_ns;
    let mut left = Vec::new();
    match hint::undo(&kernel.groups, group, latency, at_ns, &apart) {
        Ok(undone) => {
            if let Some(error) = undone.failed {
                return Err(internal(error));
            }
            if undone.others > 0 {
                let text = format!(
                    "latency: {} tasks have a slice that another program gave them; left alone",
                    undone.others
                );
                left.push(text);
            }
        }
        Err(error) if error.is_gone() => {}
        Err(error) => return Err(of_group(error)),
    }
    kernel.journal().forget_entry(entry.id);
    Ok(left)
}

fn whose(gate: &Gate) -> (GroupPath, Whose) {
    match &gate.record.attachment {
        Attachment::Observed {
            pid, start_ticks, ..
        } => {
            let task = TaskId {
                tid: *pid,
                start_ticks: *start_ticks,
            };
            let whose = match gate.record.is_of_thread() {
                true => Whose::Thread(task),
                false => Whose::Process(task),
            };
            (GroupPath::root(), whose)
        }
        attachment => (attachment.group().clone(), Whose::Group),
    }
}

fn denied(error: &KfsError) -> ApiError {
    let kind = if error.is_denied() {
        ErrorKind::Denied
    } else {
        ErrorKind::Internal
    };
    ApiError::new(kind, format!("latency: {error}"))
}

// One hint within another: the nearer holds, and what it covers is not touched for the farther.

/// What lies within a gate's tasks and has a hint of its own.
pub(crate) fn apart_from(
    fs: &dyn KernelFs,
    places: &[HintPlace],
    gate: &str,
    group: &GroupPath,
    whose: Whose,
) -> Apart {
    let mut apart = Apart::default();
    let others = places.iter().filter(|place| place.gate != gate);
    for other in others.filter(|_| whose == Whose::Group) {
        match other.whose {
            Whose::Group if is_below(&other.group, group) => apart.groups.push(other.group.clone()),
            Whose::Group => {}
            Whose::Process(process) => apart.tids.extend(tasks::threads(fs, process)),
            Whose::Thread(thread) => {
                apart.tids.insert(thread.tid);
            }
        }
    }
    apart
}

/// What other gates' hints come to that a gate's tasks may have had until now: those of groups
/// around it; for a process, which may have been in any, those of all groups.
pub(crate) fn hints_around(
    places: &[HintPlace],
    gate: &str,
    group: &GroupPath,
    whose: Whose,
) -> Vec<HintSetting> {
    let around = |other: &&HintPlace| {
        let is_around = whose != Whose::Group || is_below(group, &other.group);
        other.gate != gate && other.whose == Whose::Group && is_around
    };
    places
        .iter()
        .filter(around)
        .map(|other| other.ours)
        .collect()
}

fn is_below(group: &GroupPath, above: &GroupPath) -> bool {
    group != above && group.is_within(above)
}
