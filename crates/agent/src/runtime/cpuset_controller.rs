//! Idle kept by the cpuset: side work on whole cores, by the side root's cpuset; and off the CPUs of a main that has a cpuset of its own.
//!
//! A thread beside the loop, ten polls a second: what the law allows now goes to the planner ([`tidegate_engine::cpuset_planner`]), and what that
//! changes goes to the journal and then to the cpuset. The loop has no part in it, for a cpuset takes longer to write than a step lasts; its
//! quota holds whatever the cpuset is.
//!
//! While side work is confined it yields by the least weight in place of the idle class: the kernel's wakeups take a CPU that runs
//! only idle-class work for idle and stay there, beside a busy sibling, where a whole core is free. Only the side root is confined:
//! targets that stay in their place have their quota alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_cgroup::cpus::format_list;
use tidegate_cgroup::group::{CpusetMembers, GroupPath, Groups};
use tidegate_cgroup::topology::Topology;
use tidegate_engine::apply::{JournalError, enter_idle_class, leave_idle_class};
use tidegate_engine::cpuset_planner::{
    CpusetAllowance, CpusetPlanner, CpusetPlannerConfig, DOMAIN_POLL_NS, POLL_NS, Release,
};
use tidegate_engine::domain::Keeps;
use tidegate_engine::ledger::{Change, Entry};
use tidegate_engine::sync::lock;
use tidegate_terms as terms;
use tracing::warn;

use crate::control_loop::ControlLoop;
use crate::gates::Gates;
use crate::kernel::Kernel;
use crate::process::Life;
use crate::runtime::Runtime;
use crate::runtime::domains::poll_domains;

/// `cpuset = auto` is on from here, where CPUs share cores. On fewer (16 simulated CPUs) the few free cores are often all busy, and main's
/// 99th percentile was better under `cpu.idle` alone; with 32 it is even, with 64 and 256 whole cores win throughout.
const AUTO_CPUS_MIN: usize = 32;

/// Each so many polls the CPUs, the members and the weight are looked at, too.
const POLLS_PER_SECOND: u64 = 10;

/// What keeps idle by cpuset.
pub struct CpusetController {
    planner: CpusetPlanner,
    topology: Topology,
    /// Wanted on this machine, and why or why not.
    wanted: bool,
    why: String,
    /// Some idle is to be kept, or was a moment ago.
    keeps_idle: bool,
    release: Release,
    /// Why side work is not to be confined at all, not even for a domain's sake.
    refused: Option<String>,
    /// A cpuset of ours stands.
    stands: bool,
    /// The domains that are kept by the cpuset.
    parts: Vec<Vec<u32>>,
    /// Side work is there to be confined.
    used: bool,
    rooms_ucpu: Vec<u64>,
    main_ns: Vec<u64>,
    /// Why headroom is not kept where it was asked for.
    notes: Vec<String>,
    gathered: CpusetMembers,
    changes: u64,
    polls: u64,
    left_alone: bool,
    ended: bool,
    /// The scheduler of the engine ext finds whole cores by itself; domains are all that is left to do here.
    enforced_by_ext: bool,
    out_of_idle: Arc<AtomicBool>,
    last_error: Option<String>,
}

impl CpusetController {
    /// On a machine like this.
    pub fn new(setting: terms::CpusetMode, topology: Topology, groups: &Groups) -> Self {
        let cpus = topology.cpus().len();
        let refused = groups.cpuset_refusal();
        let (wanted, why) = match (setting, refused) {
            (terms::CpusetMode::Off, _) => (false, "cpuset = off".to_owned()),
            (_, Some(refused)) => (false, refused),
            (terms::CpusetMode::On, None) => (true, "cpuset = on".to_owned()),
            (terms::CpusetMode::Auto, None) if cpus < AUTO_CPUS_MIN => (
                false,
                format!("{cpus} CPUs; cpuset = auto is from {AUTO_CPUS_MIN}"),
            ),
            (terms::CpusetMode::Auto, None) if !topology.shares_cores() => {
                (false, "no two CPUs share a core".to_owned())
            }
            (terms::CpusetMode::Auto, None) => (true, "cpuset = auto".to_owned()),
        };
        Self {
            planner: CpusetPlanner::new(CpusetPlannerConfig::default()),
            topology,
            wanted,
            why,
            keeps_idle: true,
            release: Release::default(),
            stands: false,
            parts: Vec::new(),
            used: false,
            rooms_ucpu: Vec::new(),
            main_ns: Vec::new(),
            notes: Vec::new(),
            refused: match setting {
                terms::CpusetMode::Off => Some("cpuset = off".to_owned()),
                _ => groups.cpuset_refusal(),
            },
            gathered: CpusetMembers::default(),
            changes: 0,
            polls: 0,
            left_alone: false,
            ended: false,
            enforced_by_ext: false,
            out_of_idle: Arc::default(),
            last_error: None,
        }
    }

    /// Set while side work yields by the least weight.
    pub fn out_of_idle(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.out_of_idle)
    }

    /// Another writer insists on the cpuset.
    pub fn leave_alone(&mut self) {
        self.left_alone = true;
    }

    /// Why side work cannot be confined; `None` when it can.
    pub(crate) fn refusal(&self) -> Option<String> {
        let theirs = || "another program writes side work's cpuset".to_owned();
        self.refused
            .clone()
            .or_else(|| self.left_alone.then(theirs))
    }

    pub(crate) fn set_notes(&mut self, notes: Vec<String>) {
        self.notes = notes;
    }

    /// Why headroom is not kept where it was asked for.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The CPUs that side work is confined to; none where it is not.
    pub(crate) fn standing_cpus(&self) -> Vec<u32> {
        if self.stands {
            self.planner.standing()
        } else {
            Vec::new()
        }
    }

    fn is_wanted(&self) -> bool {
        let whole = self.wanted && self.keeps_idle && !self.enforced_by_ext;
        (whole || !self.parts.is_empty()) && !self.left_alone
    }

    /// The next poll is due after this.
    fn pause_ns(&self) -> u64 {
        match (self.used && !self.left_alone, self.parts.is_empty()) {
            (true, false) => DOMAIN_POLL_NS,
            (false, false) => POLL_NS,
            _ if self.wanted => POLL_NS,
            _ => POLL_NS * POLLS_PER_SECOND,
        }
    }

    /// For people.
    pub fn sentence(&self) -> String {
        if self.enforced_by_ext && self.parts.is_empty() {
            return "by the scheduler: side work on cores that it is on already first".to_owned();
        }
        if !self.wanted && self.parts.is_empty() {
            return format!("by quota only ({})", self.why);
        }
        if let Some(last_error) = &self.last_error {
            return format!("by quota only: {last_error}");
        }
        if self.left_alone {
            return "by quota only: another program writes the cpuset".to_owned();
        }
        let cpus = self.planner.standing();
        if !self.parts.is_empty() {
            let list = format_list(&cpus);
            return match self.stands {
                true => format!(
                    "on main's own CPUs by cpuset: side work on CPUs {list}, weight 1; {} changes in all{}",
                    self.changes,
                    self.others()
                ),
                false => "on main's own CPUs by cpuset as soon as side work runs".to_owned(),
            };
        }
        if !self.keeps_idle {
            return format!(
                "by the idle class alone while no idle is to be kept; else by cpuset ({})",
                self.why
            );
        }
        if !self.stands {
            return format!("by cpuset as soon as side work runs ({})", self.why);
        }
        let count = self
            .topology
            .cores()
            .iter()
            .filter(|core| core.cpus.iter().any(|cpu| cpus.contains(cpu)))
            .count();
        let cores = match count {
            1 => "one whole core".to_owned(),
            count => format!("{count} whole cores"),
        };
        format!(
            "by cpuset: side work on {cores}, CPUs {}, weight 1 ({}); {} changes in all{}",
            format_list(&cpus),
            self.why,
            self.changes,
            self.others()
        )
    }

    fn others(&self) -> String {
        match self.gathered.others {
            0 => String::new(),
            others => format!("; {others} processes keep a cpuset of their own"),
        }
    }
}

/// Polls until the agent leaves.
pub(crate) fn run(registry: &Gates, runtime: &Runtime, life: &Life) {
    let kernel = &runtime.kernel;
    let mut polled_ns = 0;
    while !life.leaving.load(Ordering::Acquire) {
        let pause_ns = lock(&runtime.cpuset).pause_ns();
        kernel.clock.sleep(Duration::from_nanos(pause_ns));
        // Not a count of polls: on a full machine each may come late.
        let now_ns = kernel.clock.now_ns();
        if now_ns.saturating_sub(polled_ns) >= POLL_NS * POLLS_PER_SECOND {
            polled_ns = now_ns;
            poll_domains(registry, runtime);
            note_main(runtime);
        }
        poll_cpuset(registry, runtime);
    }
}

/// One poll.
pub(crate) fn poll_cpuset(registry: &Gates, runtime: &Runtime) {
    let kernel = &runtime.kernel;
    let root = kernel.side_root();
    let slow = {
        let mut cpuset = lock(&runtime.cpuset);
        if cpuset.ended {
            return;
        }
        cpuset.polls += 1;
        cpuset.enforced_by_ext = runtime.ext.holds();
        let each = POLL_NS * POLLS_PER_SECOND / cpuset.pause_ns().min(POLL_NS);
        (cpuset.polls - 1).is_multiple_of(each)
    };
    if slow || !lock(&runtime.cpuset).stands {
        let gates = registry.lock();
        let in_root = |gate| kernel.limited_group(gate).as_ref() == Some(&root);
        let used = gates.iter().any(in_root);
        drop(gates);
        lock(&runtime.cpuset).used = used;
    }
    let mut cpuset = lock(&runtime.cpuset);
    if cpuset.ended {
        return;
    }
    let has_changed = follow_parts(&runtime.control_loop, &mut cpuset, kernel.clock.now_ns());
    if !cpuset.is_wanted() || !cpuset.used {
        // Left by an earlier agent, or no longer needed.
        let ours = slow && !cpuset.left_alone && runtime.journal().confined(&root).is_some();
        if cpuset.stands || ours {
            relax(runtime, &mut cpuset, &root);
        }
        return;
    }
    // What was refused is tried again each second.
    if cpuset.last_error.is_some() && !slow {
        return;
    }
    let slow = slow || has_changed || !cpuset.stands;
    let done = confine(runtime, &mut cpuset, &root, slow).map_err(|error| error.to_string());
    if let Err(why) = &done
        && cpuset.last_error.as_ref() != Some(why)
    {
        warn!("whole cores: {why}");
    }
    if done.is_err() {
        cpuset.planner.forget();
        runtime.control().set_confined(false);
    }
    cpuset.last_error = done.err();
}

/// Where main runs, once a second.
fn note_main(runtime: &Runtime) {
    let mut cpuset = lock(&runtime.cpuset);
    if cpuset.used && cpuset.is_wanted() {
        runtime.control().main_by_cpu(&mut cpuset.main_ns);
        let CpusetController {
            planner, main_ns, ..
        } = &mut *cpuset;
        planner.note_main(main_ns);
    }
}

/// The domains that the loop has laws for now; whether they are others than before.
fn follow_parts(control_loop: &ControlLoop, cpuset: &mut CpusetController, now_ns: u64) -> bool {
    let control = control_loop.lock();
    cpuset.keeps_idle = !cpuset.release.is_due(control.keeps_idle(), now_ns);
    let domains = control.demand().domains.iter();
    let parts = domains.filter(|domain| domain.keeps == Keeps::Cpuset);
    if parts.clone().map(|domain| &domain.cpus).eq(&cpuset.parts) {
        return false;
    }
    cpuset.parts = parts.map(|domain| domain.cpus.clone()).collect();
    true
}

fn confine(
    runtime: &Runtime,
    cpuset: &mut CpusetController,
    root: &GroupPath,
    slow: bool,
) -> Result<(), JournalError> {
    let kernel = &runtime.kernel;
    if slow {
        // A machine whose CPUs cannot be read is as it was.
        cpuset.topology = Topology::read(&*kernel.fs).unwrap_or(cpuset.topology.clone());
        let parent = root.parent().unwrap_or_else(GroupPath::root);
        let allowed = kernel.groups.cpuset_allowed(&parent)?;
        let CpusetController {
            planner,
            topology,
            parts,
            ..
        } = cpuset;
        planner.set_cpus(topology, &allowed, parts);
    }
    let (whole_ucpu, relieved) = {
        let control = runtime.control();
        control.rooms_ucpu(&mut cpuset.rooms_ucpu);
        let relieved = control.quotas.is_relieved(root);
        (
            control
                .quota_room_ucpu()
                .filter(|_| cpuset.wanted && cpuset.keeps_idle),
            relieved,
        )
    };
    let room = CpusetAllowance {
        whole_ucpu,
        domains_ucpu: &cpuset.rooms_ucpu,
    };
    if let Some(cpus) = cpuset.planner.step(kernel.clock.now_ns(), room) {
        write_cpuset(kernel, root, &cpus)?;
        cpuset.changes += 1;
        cpuset.out_of_idle.store(true, Ordering::Release);
        leave_idle_class(&mut runtime.journal(), root, !relieved)?;
        if !cpuset.stands {
            cpuset.stands = true;
            cpuset.gathered = kernel.groups.gather_cpuset(root)?;
        }
    } else if slow && cpuset.stands {
        // A guardian that stood in for us puts side work back into the idle class.
        leave_idle_class(&mut runtime.journal(), root, !relieved)?;
        cpuset.gathered = kernel.groups.gather_cpuset(root)?;
    }
    runtime.control().set_confined(cpuset.stands);
    Ok(())
}

/// Under the journal's lock, so that housekeeping does not take this write for an outside one.
fn write_cpuset(kernel: &Kernel, root: &GroupPath, cpus: &[u32]) -> Result<(), JournalError> {
    let mut journal = kernel.journal();
    let was = if kernel.groups.has_cpuset(root) {
        kernel.groups.cpuset(root)?
    } else {
        Vec::new()
    };
    journal.record_cpuset(root, &was, cpus)?;
    let written = kernel
        .groups
        .open_cpuset(root)
        .and_then(|()| kernel.groups.set_cpuset(root, cpus));
    Ok(written?)
}

/// Side work is in the idle class again, and may run everywhere, unless another writer insists on its cpuset.
fn relax(runtime: &Runtime, cpuset: &mut CpusetController, root: &GroupPath) {
    let kernel = &runtime.kernel;
    // The quota first: it has to hold what the cpuset no longer does.
    runtime.control().set_confined(false);
    cpuset.out_of_idle.store(false, Ordering::Release);
    cpuset.stands = false;
    cpuset.planner.forget();
    // The processes first, without the journal, for which the loop waits.
    if !cpuset.left_alone
        && let Err(error) = kernel.groups.close_cpuset(root)
    {
        warn!("whole cores: {error}");
    }
    let mut journal = runtime.journal();
    let is_cpuset = |change: &Change| matches!(change, Change::Cpuset { .. });
    let ours = |entry: &Entry| entry.group == *root && is_cpuset(&entry.change);
    if !cpuset.left_alone {
        for line in journal.restore_lines(ours) {
            warn!("whole cores: {line}");
        }
    }
    if kernel.groups.exists(root)
        && let Err(why) = enter_idle_class(&mut journal, root)
    {
        warn!("whole cores: {why}");
    }
}

/// The agent leaves: nothing of this stays.
pub(crate) fn end_cpuset(runtime: &Runtime) {
    let root = runtime.kernel.side_root();
    let mut cpuset = lock(&runtime.cpuset);
    cpuset.ended = true;
    if cpuset.stands {
        relax(runtime, &mut cpuset, &root);
    }
}

/// A new process of the side root's, before it runs its command: v1 wants it in the cpuset's group.
pub(crate) fn gather_cpuset(runtime: &Runtime) {
    let kernel = &runtime.kernel;
    let mut cpuset = lock(&runtime.cpuset);
    if !cpuset.stands || cpuset.ended {
        return;
    }
    match kernel.groups.gather_cpuset(&kernel.side_root()) {
        Ok(gathered) => cpuset.gathered = gathered,
        Err(error) => warn!("whole cores: {error}"),
    }
}
