//! The machine as the agent reads and writes it: file system, groups, journal, and what is possible
//! there.

use std::sync::{Arc, Mutex, MutexGuard};

use tidegate_api::{ApiError, ApiResult, ErrorKind};
use tidegate_cgroup::KernelFs;
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::discover::{CgroupVersion, Machine};
use tidegate_cgroup::group::{GroupError, GroupPath, GroupResult, Groups, Placement};
use tidegate_cgroup::target::{HeldProcess, ProcessRef, TargetError};
use tidegate_engine::apply::{Journal, limited_above};
use tidegate_engine::clock::Clock;
use tidegate_engine::ledger::{LedgerError, OpenReport};
use tidegate_engine::sense::Group as SensedGroup;
use tidegate_engine::sync::lock;
use tracing::warn;

use crate::errors::{internal, of_group};
use crate::gates::{Attachment, Gate, find_in};
use crate::paths::RunDir;
use crate::process::tree_lock::TreeLocks;

/// Why there is no group of ours below another's.
pub(crate) enum NoGroup {
    /// There can be none, for this reason: the work belongs elsewhere.
    NotPossible(String),
    Failed(ApiError),
}

impl From<ApiError> for NoGroup {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

pub struct Kernel {
    /// Where the agent keeps its files, and what its groups are called.
    pub run_dir: RunDir,
    pub machine: Machine,
    pub fs: Arc<dyn KernelFs>,
    /// The time of the agent's threads. The control loop has timers of its own.
    pub clock: Arc<dyn Clock>,
    pub groups: Arc<Groups>,
    pub journal: Arc<Mutex<Journal>>,
    /// Whether systemd is told what units fall back to; not so in a rehearsal.
    pub tells_systemd: bool,
    pub tree_locks: Mutex<TreeLocks>,
    /// Side work has short turns, which keep what wakes from waiting behind it
    /// (docs/decisions/turns.md).
    pub has_short_turns: bool,
}

impl Kernel {
    /// With the journal that an earlier agent left in the run directory.
    pub(crate) fn open(
        fs: Arc<dyn KernelFs>,
        machine: Machine,
        run_dir: RunDir,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, OpenReport), LedgerError> {
        let groups = Arc::new(Groups::new(Arc::clone(&fs), &machine));
        let (journal, report) = Journal::open(run_dir.dir(), Arc::clone(&groups))?;
        let kernel = Self {
            run_dir,
            machine,
            fs,
            clock,
            groups,
            journal: Arc::new(Mutex::new(journal)),
            tells_systemd: true,
            tree_locks: Mutex::default(),
            has_short_turns: false,
        };
        Ok((kernel, report))
    }

    /// What was written over what. The last of the locks: not held while a process is moved, for
    /// the loop waits for it.
    pub(crate) fn journal(&self) -> MutexGuard<'_, Journal> {
        lock(&self.journal)
    }

    /// A group of ours at the top: `<prefix>-side` and so on.
    fn root_named(&self, what: &str) -> GroupPath {
        let name = format!("{}-{what}", self.run_dir.prefix());
        // The prefix was checked when the agent started.
        self.groups
            .base()
            .join(&name)
            .unwrap_or_else(|_| GroupPath::root())
    }

    /// The one group that all side work of `run` is in.
    pub(crate) fn side_root(&self) -> GroupPath {
        self.root_named("side")
    }

    /// The group that main and neutral work of `run` is in.
    pub(crate) fn main_root(&self) -> GroupPath {
        self.root_named("main")
    }

    /// The group of the gate `name` below a group that is not ours. Its end is what no other group
    /// of ours has: no gate's name has this character, so it is neither a root (the gate may be
    /// called `main`) nor a soft cap's group, and the group of one process or task ends in a digit.
    pub(crate) fn name_below_others(&self, name: &str) -> String {
        format!("{}-{name}=", self.run_dir.prefix())
    }

    /// Whether the group has such a name; the gate's is what is in it.
    pub(crate) fn gate_below_others<'g>(&self, group: &'g GroupPath) -> Option<&'g str> {
        let rest = group.name().strip_prefix(self.run_dir.prefix())?;
        let name = rest.strip_prefix('-')?.strip_suffix('=')?;
        (!name.contains('=')).then_some(name)
    }

    pub(crate) fn is_below_others(&self, group: &GroupPath) -> bool {
        !self.is_in_roots(group) && self.gate_below_others(group).is_some()
    }

    /// Whether the group is ours: in our roots, or below another's by the journal. A user may make
    /// a group that is called like ours.
    pub(crate) fn is_ours(&self, group: &GroupPath) -> bool {
        self.is_in_roots(group) || self.is_below_others(group) && self.journal().knows(group)
    }

    pub(crate) fn is_in_roots(&self, group: &GroupPath) -> bool {
        group.is_within(&self.side_root()) || group.is_within(&self.main_root())
    }

    /// The group whose quota limits `gate`; `None` when nothing does.
    pub(crate) fn limited_group(&self, gate: &Gate) -> Option<GroupPath> {
        limited_below(&self.side_root(), gate).cloned()
    }

    pub(crate) fn processes_below(&self, group: &GroupPath, depth: u32) -> usize {
        self.ids_below(group, depth, Groups::procs).len()
    }

    pub(crate) fn tids_below(&self, group: &GroupPath, depth: u32) -> Vec<i32> {
        self.ids_below(group, depth, Groups::tids)
    }

    fn ids_below(
        &self,
        group: &GroupPath,
        depth: u32,
        here: fn(&Groups, &GroupPath) -> GroupResult<Vec<i32>>,
    ) -> Vec<i32> {
        let mut ids = here(&self.groups, group).unwrap_or_default();
        if depth > 0 {
            let children = self.groups.children(group).unwrap_or_default();
            for child in children {
                ids.extend(self.ids_below(&child, depth - 1, here));
            }
        }
        ids
    }

    pub(crate) fn gate_of<'g>(&self, gates: &'g [Gate], pid: i32) -> Option<&'g Gate> {
        let at = self.groups.group_of(pid).ok()??;
        gates
            .iter()
            .filter(|gate| !matches!(gate.record.attachment, Attachment::Observed { .. }))
            .filter(|gate| at.is_within(gate.record.attachment.group()))
            .max_by_key(|gate| gate.record.attachment.group().as_str().len())
    }

    /// PID reuse between the look-up and the move is detected: the later process goes back.
    pub(crate) fn check_moved(&self, placement: &Placement, held: &HeldProcess) -> ApiResult<()> {
        let pid = placement.pid;
        if held.is_same(&*self.fs) {
            return Ok(());
        }
        if let Err(error) = self.groups.place_back(placement) {
            warn!("process {pid}: {error}");
        }
        let detail = format!("process {pid}: it exited meanwhile");
        Err(ApiError::new(ErrorKind::NotFound, detail)
            .with_remedy(format!("look with: ps -p {pid}")))
    }

    /// Refuses one of our top groups that an agent with another run directory has.
    pub(crate) fn own_root(&self, root: &GroupPath) -> ApiResult<()> {
        // Only the machine has other agents.
        if !self.fs.is_machine() || !self.groups.exists(root) {
            return Ok(());
        }
        match lock(&self.tree_locks).lock(&self.groups.dir(root)) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let detail =
                    format!("group {root}: another agent, with a run directory of its own, has it");
                let remedy = "ask that one (TIDEGATE_RUN_DIR), stop it, or set TIDEGATE_PREFIX";
                Err(ApiError::new(ErrorKind::Denied, detail).with_remedy(remedy))
            }
            Err(error) => {
                warn!("group {root}: no lock against agents with another run directory: {error}");
                Ok(())
            }
        }
    }

    /// A group of ours, in the journal as soon as it has an identity.
    pub(crate) fn ensure_made(&self, group: &GroupPath, gate: &str) -> ApiResult<()> {
        self.make(group, gate)?;
        let is_root = *group == self.side_root() || *group == self.main_root();
        if is_root {
            self.own_root(group)
        } else {
            Ok(())
        }
    }

    fn make(&self, group: &GroupPath, gate: &str) -> ApiResult<()> {
        if self.groups.exists(group) {
            return Ok(());
        }
        self.groups.create(group).map_err(of_group)?;
        self.journal().made(group, gate).map_err(|error| {
            // What is not in the journal must not be there.
            let _ = self.groups.remove(group);
            internal(error)
        })
    }

    pub(crate) fn ensure_made_below(
        &self,
        own: &GroupPath,
        group: &GroupPath,
        gate: &str,
    ) -> Result<(), NoGroup> {
        let made = match self.groups.make_below(own, group) {
            // What is not in the journal must not be there.
            Ok(()) => self
                .journal()
                .made(group, gate)
                .map_err(|error| NoGroup::Failed(internal(error))),
            Err(GroupError::NotPossible { why, .. }) => Err(NoGroup::NotPossible(why)),
            Err(error) => Err(NoGroup::Failed(of_group(error))),
        };
        made.inspect_err(|_| {
            if let Err(error) = self.groups.remove_below(own, group) {
                warn!("{error}");
            }
        })
    }

    /// Removes a group of ours; one that is still in use stays in the journal for the next try.
    pub(crate) fn remove_group(&self, group: &GroupPath) {
        match self.remove_from_tree(group) {
            Ok(()) => self.journal().forget(group),
            Err(error) => warn!("{error}"),
        }
    }

    /// Removes a group of ours, which stays in the journal.
    pub(crate) fn remove_from_tree(&self, group: &GroupPath) -> GroupResult<()> {
        match group.parent().filter(|_| self.is_below_others(group)) {
            Some(own) if self.groups.version() == CgroupVersion::V2 => {
                self.groups.remove_below(&own, group)
            }
            _ => self.groups.remove(group).map(|_| ()),
        }
    }

    pub(crate) fn sensed(&self, group: &GroupPath) -> Option<SensedGroup> {
        let cpu = self.groups.dir(group);
        let usage = self
            .machine
            .cpuacct
            .as_ref()
            .map_or_else(|| cpu.clone(), |other| other.dir(group));
        SensedGroup::new(&cpu, &usage)
            .map_err(|error| warn!("{error}"))
            .ok()
    }

    /// Whether a process in `at` is in `group`, or in a group of its own that it was given there.
    pub(crate) fn is_in(&self, at: &GroupPath, group: &GroupPath) -> bool {
        let family = self.journal().family_of(group);
        at == group || family.is_some_and(|family| family.id_of(at).is_some())
    }

    /// Without the burst that the kernel does not have: a hard cap near a whole CPU then gets up to
    /// 6 % less.
    pub(crate) fn as_kernel_has(&self, limit: Bandwidth) -> Bandwidth {
        match self.machine.features.burst.present {
            Some(false) => Bandwidth {
                burst_us: 0,
                ..limit
            },
            _ => limit,
        }
    }

    /// A tighter limit above the gate's, which is not one that we move.
    pub(crate) fn limited_above(
        &self,
        group: &GroupPath,
        own: &Bandwidth,
    ) -> Option<(GroupPath, Bandwidth)> {
        let root = self.side_root();
        limited_above(&self.groups, group, own).filter(|(above, _)| *above != root)
    }

    /// The gate of a target, which may also be its name.
    pub(crate) fn find(&self, gates: &[Gate], target: &str) -> ApiResult<usize> {
        find_in(gates, target, |pid, start_ticks| {
            self.process_gone(pid, start_ticks)
        })
    }

    /// Whether the process has exited, also if its number is another's by now. What cannot be
    /// looked at (no descriptor left) has not ended: its limits stay.
    pub(crate) fn process_gone(&self, pid: i32, start_ticks: u64) -> bool {
        match ProcessRef::look_up(&*self.fs, pid) {
            Ok(now) => now.start_ticks != start_ticks,
            Err(error) => !matches!(error, TargetError::Kfs { .. }),
        }
    }
}

/// The group whose quota limits `gate`; `root` is the side root.
pub(crate) fn limited_below<'g>(root: &'g GroupPath, gate: &'g Gate) -> Option<&'g GroupPath> {
    let group = gate.record.attachment.group();
    let limited = gate.is_limited() && !gate.away;
    limited.then(|| if group.is_within(root) { root } else { group })
}
