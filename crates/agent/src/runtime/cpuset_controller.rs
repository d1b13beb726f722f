//! Idle kept by the cpuset: side work on whole cores, by the side root's cpuset.
//!
//! Ten polls a second, outside the control loop: what the law allows now goes to the planner
//! ([`tidegate_engine::cpuset_planner`]), and what that changes goes to the journal and then to the
//! cpuset. The loop has no part in it, for a cpuset takes longer to write than a step lasts; its
//! quota holds whatever the cpuset is.
//!
//! While side work is confined it yields by the least weight in place of the idle class: the
//! kernel's wakeups take a CPU that runs only idle-class work for idle and stay there, beside a
//! busy sibling, where a whole core is free. Only the side root is confined: targets that stay in
//! their place have their quota alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_cgroup::cpus::format_list;
use tidegate_cgroup::group::{GatherReport, GroupPath, Groups};
use tidegate_cgroup::topology::Topology;
use tidegate_engine::apply::{JournalResult, enter_idle_class, leave_idle_class};
use tidegate_engine::cpuset_planner::{CpusetPlanner, POLL_NS, Release};
use tidegate_engine::ledger::{Change, Entry};
use tidegate_engine::sync::lock;
use tidegate_terms::{self as terms, Settings};
use tracing::warn;

use crate::gates::Gates;
use crate::kernel::Kernel;
use crate::runtime::Runtime;
use crate::runtime::demand::poll_demand;

/// `cpuset = auto` is on from here, where CPUs share cores. On fewer (16 simulated CPUs) the few
/// free cores are often all busy, and main's 99th percentile was better under `cpu.idle` alone;
/// with 32 it is even, with 64 and 256 whole cores win throughout.
const AUTO_CPUS_MIN: usize = 32;

/// Each so many polls the CPUs, the members and the weight are looked at, too.
const POLLS_PER_SECOND: u64 = 10;

#[derive(Default)]
pub struct CpusetController {
    planner: CpusetPlanner,
    topology: Topology,
    wanted: bool,
    why: String,
    keeps_idle: bool,
    release: Release,
    stands: bool,
    used: bool,
    main_ns: Vec<u64>,
    gathered: GatherReport,
    changes: u64,
    polls: u64,
    left_alone: bool,
    ended: bool,
    /// The scheduler of the engine sched_ext finds whole cores by itself.
    enforced_by_sched_ext: bool,
    out_of_idle: Arc<AtomicBool>,
    last_error: Option<String>,
}

impl CpusetController {
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
            topology,
            wanted,
            why,
            keeps_idle: true,
            ..Self::default()
        }
    }

    /// The machine's settings, with the default headroom for whole cores where those are used.
    pub fn settings(&self, settings: Settings) -> Settings {
        match self.wanted {
            true => settings.on_whole_cores(),
            false => settings,
        }
    }

    /// Set while side work yields by the least weight.
    pub fn out_of_idle(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.out_of_idle)
    }

    pub fn leave_alone(&mut self) {
        self.left_alone = true;
    }

    fn is_wanted(&self) -> bool {
        self.wanted && self.keeps_idle && !self.enforced_by_sched_ext && !self.left_alone
    }

    /// Whether it confines side work wherever idle is to be kept.
    pub fn is_in_use(&self) -> bool {
        self.wanted && !self.left_alone
    }

    fn pause_ns(&self) -> u64 {
        if self.wanted {
            POLL_NS
        } else {
            POLL_NS * POLLS_PER_SECOND
        }
    }

    pub fn sentence(&self) -> String {
        if self.enforced_by_sched_ext {
            return "by the scheduler: side work on cores that it is on already first".to_owned();
        }
        if !self.wanted {
            return format!("by quota only ({})", self.why);
        }
        if let Some(last_error) = &self.last_error {
            return format!("by quota only: {last_error}");
        }
        if self.left_alone {
            return "by quota only: another program writes the cpuset".to_owned();
        }
        let cpus = self.planner.standing();
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
            1 => "; one process keeps a cpuset of its own".to_owned(),
            others => format!("; {others} processes keep a cpuset of their own"),
        }
    }
}

pub(crate) fn period(runtime: &Runtime) -> Duration {
    Duration::from_nanos(lock(&runtime.cpuset).pause_ns())
}

pub(crate) fn poll_second(registry: &Gates, runtime: &Runtime) {
    poll_demand(registry, runtime);
    note_main(runtime);
}

pub(crate) fn poll_cpuset(registry: &Gates, runtime: &Runtime) {
    let kernel = &runtime.kernel;
    let root = kernel.side_root();
    let slow = {
        let mut cpuset = lock(&runtime.cpuset);
        if cpuset.ended {
            return;
        }
        cpuset.polls += 1;
        cpuset.enforced_by_sched_ext = runtime.sched_ext.holds();
        (cpuset.polls - 1).is_multiple_of(POLLS_PER_SECOND)
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
    let keeps_idle = runtime.control().keeps_idle();
    let is_free = cpuset.release.is_due(keeps_idle, kernel.clock.now_ns());
    cpuset.keeps_idle = !is_free;
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
    let slow = slow || !cpuset.stands;
    let done = confine(runtime, &mut cpuset, &root, slow).map_err(|error| error.to_string());
    if let Err(why) = &done
        && cpuset.last_error.as_ref() != Some(why)
    {
        warn!("whole cores: {why}");
    }
    if done.is_err() {
        cpuset.planner.forget();
    }
    cpuset.last_error = done.err();
}

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

fn confine(
    runtime: &Runtime,
    cpuset: &mut CpusetController,
    root: &GroupPath,
    slow: bool,
) -> JournalResult<()> {
    let kernel = &runtime.kernel;
    if slow {
        // A machine whose CPUs cannot be read is as it was.
        cpuset.topology = Topology::read(&*kernel.fs).unwrap_or(cpuset.topology.clone());
        let parent = root.parent().unwrap_or_else(GroupPath::root);
        let allowed = kernel.groups.cpuset_allowed(&parent)?;
        let CpusetController {
            planner, topology, ..
        } = cpuset;
        planner.set_cpus(topology, &allowed);
    }
    let (room_ucpu, relieved) = {
        let control = runtime.control();
        (control.room_ucpu(), control.quotas.is_relieved(root))
    };
    if let Some(cpus) = cpuset.planner.step(kernel.clock.now_ns(), room_ucpu) {
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
    Ok(())
}

/// Under the journal's lock, so that housekeeping does not take this write for an outside one.
fn write_cpuset(kernel: &Kernel, root: &GroupPath, cpus: &[u32]) -> JournalResult<()> {
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

/// Side work is in the idle class again, and may run everywhere, unless another writer insists on
/// its cpuset.
fn relax(runtime: &Runtime, cpuset: &mut CpusetController, root: &GroupPath) {
    let kernel = &runtime.kernel;
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
