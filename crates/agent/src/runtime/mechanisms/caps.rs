//! Rate caps of one gate.
//!
//! A hard cap for all of a gate is a quota (`bandwidth`). A soft cap is the loop's
//! ([`tidegate_engine::control::SoftCaps`]): here its group gets into the journal and, until the
//! loop has polled, into the background.

use tidegate_api::{ApiError, ApiResult, CapView, ErrorKind};
use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::subgroups::exempt;
use tidegate_engine::control::SoftCapped;
use tidegate_engine::ledger::Change;
use tidegate_terms::Class;

use crate::control_loop::ControlLoop;
use crate::errors::{not_recorded, of_group};
use crate::gates::{Attachment, Gate};
use crate::kernel::Kernel;
use crate::runtime::Runtime;
use crate::runtime::mechanisms::subgroups::{
    enforce_subgroups, leave_subgroups, set_soft_caps, withdraw_subgroups,
};

const START: &str = "background: ";
const EXEMPT: &str = "real-time: ";
const NAMED_MAX: usize = 8;

pub(crate) fn enforce_caps(runtime: &Runtime, gate: &mut Gate) -> ApiResult<()> {
    let kernel = &runtime.kernel;
    check_use_is_known(runtime, gate)?;
    note_exempt(kernel, gate);
    enforce_soft(runtime, gate)?;
    enforce_subgroups(runtime, gate)
}

pub(crate) fn withdraw_caps(runtime: &Runtime, gate: &Gate) -> Vec<String> {
    let mut left = withdraw_subgroups(runtime, gate);
    left.extend(withdraw_soft(runtime, gate.record.attachment.group()));
    left
}

pub(crate) fn publish_soft_caps(runtime: &Runtime, gates: &[Gate]) {
    let capped = gates
        .iter()
        .filter_map(|gate| soft_capped(&runtime.kernel, gate));
    set_soft_caps(runtime, capped.collect());
}

/// The loop keeps a soft cap by the use of the gate's group, so a new one is refused where that is
/// unknown. One that was in force rests ([`tidegate_engine::control::SoftCaps`]).
fn check_use_is_known(runtime: &Runtime, gate: &Gate) -> ApiResult<()> {
    let kernel = &runtime.kernel;
    let has_bucket = gate.terms.soft_ppt().is_some_and(|soft_ppt| soft_ppt > 0);
    let Some(group) = gate.record.attachment.placed().filter(|_| has_bucket) else {
        return Ok(());
    };
    let is_known = |group| matches!(kernel.groups.usage_ns(group), Ok(Some(_)));
    if runtime.sched_ext.holds()
        || kernel.journal().background_of(group).is_some()
        || kernel.journal().family_of(group).is_some()
        || is_known(group)
    {
        return Ok(());
    }
    let (why, remedy) = match &kernel.machine.cpuacct {
        Some(cpuacct) => (
            format!("{group} is not in the cpuacct hierarchy"),
            format!(
                "make {} and move its tasks there, or use cap_hard",
                cpuacct.dir(group).display()
            ),
        ),
        None => (
            "this machine counts no CPU use of groups".to_owned(),
            "mount the cpuacct controller, or use cap_hard".to_owned(),
        ),
    };
    let detail = format!(
        "cap_soft: gate {}: its CPU use is unknown: {why}",
        gate.record.name
    );
    Err(ApiError::new(ErrorKind::Unsupported, detail).with_remedy(remedy))
}

/// Real-time tasks are named: no cap acts on them.
fn note_exempt(kernel: &Kernel, gate: &mut Gate) {
    gate.record.notes.retain(|note| !note.starts_with(EXEMPT));
    if !gate.terms.is_bounded() {
        return;
    }
    let Some(group) = gate.record.attachment.placed() else {
        return;
    };
    let found = exempt(&kernel.groups, group, NAMED_MAX);
    if !found.is_empty() {
        let named: Vec<String> = found
            .iter()
            .map(|(tid, comm)| format!("{tid} ({comm})"))
            .collect();
        let note = format!("{EXEMPT}no cap acts on tasks {}", named.join(", "));
        gate.record.notes.push(note);
    }
}

/// The group that the loop is to put into the background and out of it.
fn soft_capped(kernel: &Kernel, gate: &Gate) -> Option<SoftCapped> {
    let soft_ppt = gate.terms.soft_for_all_ppt()?;
    let group = gate.record.attachment.group().clone();
    // A group that is not in the journal is in the background anyway, by its class or by an outside
    // write.
    kernel
        .journal()
        .background_of(&group)
        .map(|_| SoftCapped { group, soft_ppt })
}

fn enforce_soft(runtime: &Runtime, gate: &mut Gate) -> ApiResult<()> {
    let kernel = &runtime.kernel;
    gate.record.notes.retain(|note| !note.starts_with(START));
    let Some(group) = gate.record.attachment.placed().cloned() else {
        return Ok(());
    };
    if gate.terms.soft_for_all_ppt().is_none() {
        withdraw_soft(runtime, &group);
        return Ok(());
    }
    let mut journal = kernel.journal();
    if journal.background_of(&group).is_none() {
        let was = kernel.groups.class(&group).map_err(of_group)?;
        if was.idle == Some(true) {
            let note = format!("{START}it is in the idle class whatever it uses");
            gate.record.notes.push(note);
            return Ok(());
        }
        journal
            .record_background(&group, &gate.record.name, was, gate.own_fallback())
            .map_err(not_recorded)?;
    }
    // A bucket begins empty.
    journal.set_background(&group, true).map_err(not_recorded)?;
    drop(journal);
    runtime.control().soft_caps.invalidate(&group);
    let note = note_on_background(kernel, gate, &group);
    gate.record.notes.extend(note);
    Ok(())
}

fn withdraw_soft(runtime: &Runtime, group: &GroupPath) -> Vec<String> {
    if runtime.journal().background_of(group).is_none() {
        return Vec::new();
    }
    // The loop must not write behind the restore.
    runtime.control().soft_caps.drop(group);
    let mut journal = runtime.journal();
    journal.restore_lines_of(group, Change::is_background)
}

/// The idle class counts where branches of the tree divide.
fn note_on_background(kernel: &Kernel, gate: &Gate, group: &GroupPath) -> Option<String> {
    let parent = group.parent()?;
    if parent.is_root() || gate.class() == Class::Side && parent == kernel.side_root() {
        return None;
    }
    let hint = match &gate.record.attachment {
        Attachment::Owned { .. } if parent == kernel.main_root() => {
            "; started with its soft cap, it would yield to all"
        }
        _ => "",
    };
    Some(format!(
        "{START}it yields to what else is in {parent}; to the rest of the machine only as that does{hint}"
    ))
}

/// The group of a new gate that is to yield to everything: it lies where its branch and all others
/// divide.
pub(crate) fn soft_group(kernel: &Kernel, gate: &Gate) -> Option<String> {
    let at_top = gate.terms.soft_ppt().is_some() && gate.class() != Class::Side;
    // No gate's name has this character, so no other group of ours has this name.
    at_top.then(|| format!("{}-soft={}", kernel.run_dir.prefix(), gate.record.name))
}

pub(crate) fn cap_view(control_loop: &ControlLoop, gate: &Gate, now_ns: u64) -> Option<CapView> {
    let group = gate.record.attachment.group();
    let (stats, soft_ppt) = control_loop.lock().soft_caps.stats(group)?;
    let seconds = |ns: u64| ns as f64 / 1e9;
    let since = stats.background_since_ns;
    // Background for good is not looked at, so its counts end where they began.
    let background_ratio = match soft_ppt {
        0 => 1.0,
        _ => stats.in_background_ns as f64 / stats.capped_ns.max(1) as f64,
    };
    Some(CapView {
        soft_cpus: f64::from(soft_ppt) / 1e3,
        in_background_seconds: since.map(|since_ns| seconds(now_ns.saturating_sub(since_ns))),
        background_ratio,
        turns: stats.turns,
        level_us: stats.level_ns.map(|level_ns| level_ns as f64 / 1e3),
        used_background_seconds: seconds(stats.used_background_ns),
        used_foreground_seconds: seconds(stats.used_foreground_ns),
    })
}

/// Without an agent nothing would take the gate out of the background in time, so there it stays.
pub(crate) fn leave_in_background(runtime: &Runtime, gate: &Gate) -> bool {
    let group = gate.record.attachment.group();
    leave_subgroups(runtime, &gate.record.name);
    runtime.control().soft_caps.drop(group);
    let journal = runtime.journal();
    journal.background_of(group).is_some() && journal.set_background(group, true).is_ok()
}
