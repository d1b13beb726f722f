//! What the guardian and `tidegate agent repair` do without an agent.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use tidegate_cgroup::discover::{CgroupVersion, Machine, discover};
use tidegate_cgroup::group::{GroupError, GroupPath, Groups};
use tidegate_cgroup::sched::tasks::process_lives;
use tidegate_cgroup::{KernelFs, RealFs};
use tidegate_engine::apply::Journal;
use tidegate_engine::ledger::{Change, Entry, LedgerError, own_groups};

use crate::errors::MachineError;
use crate::gates::{Attachment, stored};
use crate::paths::{RunDir, RunDirError};
use crate::process::agent_lock::{AgentLock, lock_when_free};
use crate::process::lease::Lease;
use crate::systemd::revert_where;

#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    #[error("repair: {0}")]
    RunDir(RunDirError),
    #[error("repair: an agent is running; end it first with `tidegate agent stop`")]
    Running,
    #[error("repair: {}: {error}; run as root", .path.display())]
    Lock {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error(transparent)]
    Group(#[from] GroupError),
}

impl RepairError {
    pub fn is_denied(&self) -> bool {
        let denied = std::io::ErrorKind::PermissionDenied;
        matches!(self, Self::Lock { error, .. } if error.kind() == denied)
    }
}

fn open(run_dir: &RunDir) -> Result<(Arc<Groups>, Journal), MachineError> {
    let machine = discover(&RealFs::new(), None)?;
    let fs = tidegate_cgroup::machine(machine.roots())?;
    Ok(open_on(fs, &machine, run_dir)?)
}

pub(crate) fn open_on(
    fs: Arc<dyn KernelFs>,
    machine: &Machine,
    run_dir: &RunDir,
) -> Result<(Arc<Groups>, Journal), LedgerError> {
    let groups = Arc::new(Groups::new(fs, machine));
    let (journal, _) = Journal::open(run_dir.dir(), Arc::clone(&groups))?;
    Ok((groups, journal))
}

/// Writes the fallback of everything in the ledger; says what was done, a line each.
pub fn fall_back(run_dir: &RunDir, dead_seconds: u64) -> Vec<String> {
    match open(run_dir) {
        Ok((groups, mut journal)) => {
            let mut report = journal.fall_back(dead_seconds);
            // After the files: systemd may take its time.
            report.extend(revert_where(&**groups.fs(), run_dir, |record| {
                record
                    .revert_after_s
                    .is_some_and(|after_s| dead_seconds >= after_s)
            }));
            report.extend(tidegate_sched_ext::restore_rcu_thread());
            report
        }
        // What stands keeps standing: the last quota and cpu.idle.
        Err(why) => vec![format!(
            "fallback: {why}; the standing quota and cpu.idle remain"
        )],
    }
}

/// Whether no process is left in a group of ours and nothing foreign is in the journal; then
/// everything is removed.
pub fn clean_if_empty(run_dir: &RunDir) -> bool {
    let Ok((groups, mut journal)) = open(run_dir) else {
        return false;
    };
    clean_with(&groups, &mut journal, run_dir)
}

pub(crate) fn clean_with(groups: &Groups, journal: &mut Journal, run_dir: &RunDir) -> bool {
    let own = own_groups(groups, run_dir.prefix()).unwrap_or_default();
    let foreign = journal.entries().any(|entry| !is_ours(&own, &entry.group));
    let busy = |group: &GroupPath| groups.procs(group).is_ok_and(|pids| !pids.is_empty());
    if foreign || journal.unread() > 0 || own.iter().any(busy) || knows_living(groups, run_dir) {
        return false;
    }
    sweep(groups, journal, &own, run_dir);
    true
}

/// Whether gates are written down: an agent that leaves writes down those whose commands go on.
pub fn has_records(run_dir: &RunDir) -> bool {
    run_dir.gates().exists()
}

/// Whether a process that is only known, not limited (`set pid:N class=main`), still runs: the next
/// agent is to know it too.
fn knows_living(groups: &Groups, run_dir: &RunDir) -> bool {
    let text = groups.fs().read(&run_dir.gates()).unwrap_or_default();
    let stored = stored::read(&text).unwrap_or_default();
    stored
        .records
        .iter()
        .any(|record| match &record.attachment {
            Attachment::Observed {
                pid, start_ticks, ..
            } => process_lives(&**groups.fs(), *pid, *start_ticks),
            _ => false,
        })
}

/// `own` is sorted, as it is found.
fn is_ours(own: &[GroupPath], group: &GroupPath) -> bool {
    own.binary_search(group).is_ok()
}

fn sweep(groups: &Groups, journal: &mut Journal, own: &[GroupPath], run_dir: &RunDir) {
    let mut removed = BTreeSet::new();
    for group in own.iter().rev() {
        // Below a group that is not ours, its name ends so (`Kernel::name_below_others`).
        let below = group
            .parent()
            .filter(|_| groups.version() == CgroupVersion::V2 && group.name().ends_with('='));
        let done = match below {
            Some(own) => groups.remove_below(&own, group),
            None => groups.remove(group).map(|_| ()),
        };
        match done {
            Ok(()) => {
                removed.insert(group.clone());
            }
            Err(error) => tracing::warn!("{error}"),
        }
    }
    journal.forget_all(&removed);
    if journal.entries().len() == 0 && journal.unread() == 0 {
        journal.close();
        forget_gates(&**groups.fs(), run_dir);
    }
}

pub(crate) fn forget_gates(fs: &dyn KernelFs, run_dir: &RunDir) {
    match fs.unlink(&run_dir.gates()) {
        Err(error) if !error.is_gone() => tracing::warn!("{error}; the next agent removes it"),
        _ => {}
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// On purpose, or unknown: no agent is going to follow.
    End,
    /// For the next agent, which a service manager starts at once: everything stands as it is, and
    /// a guardian watches.
    HandOver,
    /// By a crash, and a service manager starts the next one: gates live on, and have the fallback
    /// that they declared until then.
    Crash,
}

/// Whether the agent ended for another one to take its place, and none has yet.
pub fn is_handed_over(run_dir: &RunDir) -> bool {
    handed_over(run_dir).is_some()
}

fn handed_over(run_dir: &RunDir) -> Option<Lease> {
    Lease::of_an_agent(&run_dir.lease()).filter(Lease::is_handed_over)
}

/// Repairs what a dead agent left (a service's ExecStopPost, or by hand). After an end, foreign
/// targets are restored and empty groups removed; side commands that still run keep `cpu.idle` and
/// the floor. After a crash, the fallback is written.
pub fn repair(run_dir: &RunDir, after: After) -> Result<Vec<String>, RepairError> {
    if !run_dir.dir().exists() {
        return Ok(vec!["nothing to repair: no agent ever ran here".to_owned()]);
    }
    run_dir.check().map_err(RepairError::RunDir)?;
    let _held = match lock_when_free(run_dir) {
        AgentLock::Taken => return Err(RepairError::Running),
        AgentLock::Unusable(error) => {
            let path = run_dir.agent_lock();
            return Err(RepairError::Lock { path, error });
        }
        held => held,
    };
    let (groups, mut journal) = open(run_dir)?;
    let mut report = repair_with(&groups, &mut journal, run_dir, after)?;
    report.extend(tidegate_sched_ext::restore_rcu_thread());
    // No agent comes after all: its guardian need not wait.
    if after == After::End
        && let Some(lease) = handed_over(run_dir)
    {
        lease.leave();
    }
    Ok(report)
}

pub(crate) fn repair_with(
    groups: &Groups,
    journal: &mut Journal,
    run_dir: &RunDir,
    after: After,
) -> Result<Vec<String>, RepairError> {
    if after == After::Crash {
        return Ok(journal.fall_back(0));
    }
    if after == After::HandOver {
        return Ok(vec![
            "the service restarts: gates and limits stay".to_owned(),
        ]);
    }
    let own = own_groups(groups, run_dir.prefix())?;
    // A process that was moved into a group of ours is foreign, too.
    let moved: Vec<GroupPath> = journal
        .entries()
        .filter(|entry| matches!(entry.change, Change::Membership { .. }))
        .map(|entry| entry.group.clone())
        .collect();
    let is_foreign = |entry: &Entry| match &entry.change {
        Change::Membership { .. } => true,
        // Out of the groups of their own first, or they are not where they were put.
        Change::Subgroups(_) => moved.contains(&entry.group),
        Change::Latency(latency) => !latency.run,
        Change::Boost(_) => true,
        _ => false,
    };
    let mut report =
        journal.restore_where(|entry| is_foreign(entry) || !is_ours(&own, &entry.group));
    report.extend(journal.fall_back(u64::MAX));
    report.extend(revert_where(&**groups.fs(), run_dir, |_| true));
    let (busy, empty): (Vec<GroupPath>, Vec<GroupPath>) = own.into_iter().partition(|group| {
        groups
            .populated(group)
            .unwrap_or_else(|error| !error.is_gone())
    });
    sweep(groups, journal, &empty, run_dir);
    report.extend(still_running(&busy));
    if journal.unread() > 0 {
        report.push(format!(
            "{} changes were made by another version of tidegate, whose `repair` can undo them",
            journal.unread()
        ));
    }
    Ok(report)
}

/// A few by name: a user may have left hundreds.
fn still_running(groups: &[GroupPath]) -> Option<String> {
    const NAMED_MAX: usize = 5;
    let named: Vec<&str> = groups
        .iter()
        .take(NAMED_MAX)
        .map(GroupPath::as_str)
        .collect();
    let more = match groups.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!groups.is_empty()).then(|| {
        format!(
            "{}{more}: processes still run in there and keep their limits until they end",
            named.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_still_runs_is_one_line() {
        let groups: Vec<GroupPath> = (0..990)
            .map(|nth| GroupPath::parse(&format!("/s/{nth}")).unwrap())
            .collect();
        assert_eq!(still_running(&[]), None);
        let one = still_running(&groups[..1]).unwrap();
        assert!(one.starts_with("/s/0: processes"), "{one}");
        let all = still_running(&groups).unwrap();
        assert!(
            all.contains("/s/4 and 985 more: processes") && !all.contains("/s/5"),
            "{all}"
        );
    }
}
