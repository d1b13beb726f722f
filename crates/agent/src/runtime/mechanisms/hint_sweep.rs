//! The sweep: tasks that came into a gate without its latency hint get it, and those that inherited
//! one that they were not to have lose it. Once a second, a bounded number of tasks, one gate after
//! the other. The view of a gate's hint is here, too.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_api::LatencyView;
use tidegate_cgroup::sched::hint::{self, Latency};
use tidegate_cgroup::sched::tasks::{self, Whose};
use tidegate_cgroup::sched::{HintSetting, Support, probe};
use tidegate_engine::apply::HintPlace;
use tracing::{debug, warn};

use crate::gates::{Gate, HintState};
use crate::kernel::Kernel;
use crate::runtime::mechanisms::hints::{apart_from, has_short_turns, hints_around, pass_hint};

/// A look at a task is one system call of half a microsecond: so many a second cost 0.1 % of one
/// CPU.
const TASKS_PER_POLL: usize = 2_000;

/// Finding a gate's tasks costs as much as a look at this many.
const TASKS_A_GATE: usize = 48;

/// Sweeps some of the hinted gates, from number `next` of them on.
pub(crate) fn sweep_hints(kernel: &Kernel, gates: &mut [Gate], next: &mut usize) {
    let hinted: Vec<usize> = (0..gates.len())
        .filter(|index| gates[*index].hint.is_some())
        .collect();
    if hinted.is_empty() {
        return;
    }
    let support = match probe(&*kernel.fs) {
        Ok(support) => support,
        Err(error) => return warn!("latency: {error}"),
    };
    let places = kernel.journal().hints();
    let mut budget = TASKS_PER_POLL;
    for _ in 0..hinted.len() {
        if budget == 0 {
            break;
        }
        let gate = &mut gates[hinted[*next % hinted.len()]];
        let (spent, whole) = sweep_hint(kernel, gate, &support, &places, budget);
        budget = budget.saturating_sub(spent);
        // A gate that is not through goes on at the next poll.
        *next = (*next + usize::from(whole)) % hinted.len();
    }
}

/// Goes on with one gate; says what that cost, and whether the gate is through.
fn sweep_hint(
    kernel: &Kernel,
    gate: &mut Gate,
    support: &Support,
    places: &[HintPlace],
    budget: usize,
) -> (usize, bool) {
    let name = gate.record.name.clone();
    let Some(state) = &mut gate.hint else {
        return (0, true);
    };
    let (group, whose) = (state.group.clone(), state.latency.whose);
    let apart = apart_from(&*kernel.fs, places, &name, &group, whose);
    let mut tids = match tasks::list(&kernel.groups, &group, whose, &apart.groups, usize::MAX) {
        Ok(listed) => listed.tids,
        Err(error) => {
            // It is ending, or will be told of by what looks at groups.
            debug!("latency: gate {name}: {error}");
            return (TASKS_A_GATE, true);
        }
    };
    tids.retain(|tid| *tid > state.round.at_tid && !apart.tids.contains(tid));
    let room = budget.saturating_sub(TASKS_A_GATE).max(1);
    let whole = tids.len() <= room;
    tids.truncate(room);
    let inspected = tids.len();
    let mut spent = TASKS_A_GATE + inspected;
    state.round.at_tid = tids.last().copied().unwrap_or(state.round.at_tid);
    state.round.seen.extend(&tids);
    if let Some(only) = &state.latency.only {
        spent += only.len() * TASKS_A_GATE;
        let taken = take_inherited(kernel, &state.latency, state.at_boot_ns, &mut tids);
        state.round.counts.reset += taken;
    }
    let inherited = hints_around(places, &name, &group, whose);
    let latency = std::sync::Arc::clone(&state.latency);
    match pass_hint(
        kernel,
        &tids,
        &latency,
        support,
        &inherited,
        Some(&mut state.given),
    ) {
        Ok(passed) => {
            let counts = &mut state.round.counts;
            counts.merge(&passed.counts);
            if let Some(error) = passed.denied {
                warn!("latency: gate {name}: {error}");
            }
        }
        Err(error) => warn!("gate {name}: {error}"),
    }
    if whole {
        end_round(state, kernel.clock.now_ns());
    }
    (spent, whole)
}

/// Takes the hint from tasks that inherited it and were not to; leaves in `tids` those that are to
/// have it.
fn take_inherited(kernel: &Kernel, latency: &Latency, at_boot_ns: u64, tids: &mut Vec<i32>) -> u64 {
    let fs = &*kernel.fs;
    let only = latency.only.iter().flatten();
    let entitled: BTreeSet<i32> = only
        .flat_map(|process| tasks::threads(fs, *process))
        .collect();
    let mut heirs: Vec<i32> = tids.extract_if(.., |tid| !entitled.contains(tid)).collect();
    if let Some(task) = latency.whose.task() {
        heirs.extend(tasks::heirs(fs, task, hint::ticks(at_boot_ns)));
    }
    let has_ours = |tid: &i32| {
        fs.sched(*tid).is_ok_and(|task| {
            hint::standing(&task, latency.ours, |_| false) == hint::Standing::Ours
        })
    };
    let mut taken = 0;
    for tid in heirs.into_iter().filter(has_ours) {
        match hint::take(fs, tid, latency.ours) {
            Ok(()) => taken += 1,
            Err(error) => debug!("latency: {error}"),
        }
    }
    taken
}

fn end_round(state: &mut HintState, now_ns: u64) {
    let round = std::mem::take(&mut state.round);
    state.counts = round.counts;
    // Numbers that are no task's any more are forgotten.
    let seen: BTreeSet<i32> = round.seen.into_iter().collect();
    let given: BTreeMap<_, _> = std::mem::take(&mut state.given);
    state.given = given
        .into_iter()
        .filter(|(tid, _)| seen.contains(tid))
        .collect();
    if let Some(last_ns) = state.round_ns.replace(now_ns) {
        state.every_ns = now_ns.saturating_sub(last_ns);
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

pub(crate) fn latency_view(kernel: &Kernel, gate: &Gate) -> Option<LatencyView> {
    let state = gate.hint.as_ref()?;
    let slice_ns = match state.latency.ours {
        HintSetting::SliceNs(slice_ns) => Some(slice_ns),
        HintSetting::Batch => None,
    };
    let what = match slice_ns {
        Some(_) if state.latency.hint == 0 => {
            "the kernel's own slice, whatever the hint of a group above".to_owned()
        }
        Some(slice_ns) if has_short_turns(kernel, gate) => format!(
            "the default of side work on this kernel: turns of {:.1} ms in place of {:.1} ms, so that a task that \
             wakes need not wait behind it for longer",
            us(slice_ns) / 1e3,
            us(state.base_ns) / 1e3
        ),
        Some(slice_ns) => format!(
            "a slice of {:.3} ms in place of {:.3} ms; this changes the run quantum as well",
            us(slice_ns) / 1e3,
            us(state.base_ns) / 1e3
        ),
        None => {
            "SCHED_BATCH: this kernel has no slices for tasks (6.12 brought them), and its tasks preempt no other as \
             they wake"
                .to_owned()
        }
    };
    let counts = &state.counts;
    let left = [
        (counts.others, "with a slice that another program gave them"),
        (counts.real_time, "real-time"),
        (counts.idle, "of SCHED_IDLE, to which the kernel gives none"),
        (counts.refused, "that the kernel refused"),
    ];
    let every_seconds = state.every_ns.div_ceil(1_000_000_000).max(1);
    let heirs = match (&state.latency.only, state.latency.whose) {
        (None, Whose::Group) => {
            format!("what enters the group otherwise has it within {every_seconds} s")
        }
        (None, Whose::Process(_) | Whose::Thread(_)) => "what it forks inherits it".to_owned(),
        (Some(_), _) => format!("what it forks loses it within {every_seconds} s"),
    };
    Some(LatencyView {
        hint: i32::from(state.latency.hint),
        slice_us: slice_ns.map(us),
        default_us: slice_ns.map(|_| us(state.base_ns)),
        tasks: counts.with,
        left_alone: left
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect(),
        how: format!("{what}; {heirs}"),
        look_seconds: every_seconds,
    })
}
