//! What the scheduler counts, all of it.

use std::ops::AddAssign;

use libbpf_rs::MapCore;
use serde::Serialize;

use crate::accounts::{RestStat, WorkStat};
use crate::caps::CapStat;
use crate::cost::ProgramCost;
use crate::error::SchedExtError;
use crate::headroom::HeadroomStats;
use crate::intf::{Cpu, KINDS};
use crate::limits::LimitStat;
use crate::object::get;
use crate::terms::GateTerms;

/// Counts since the scheduler was loaded, of one CPU or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CpuStats {
    /// CPU time of main and neutral work.
    pub main_ns: u64,
    pub side_ns: u64,
    /// CPU time of what is out of its soft cap.
    pub background_ns: u64,
    /// Times that a task began to run.
    pub runs: u64,
    /// Woken tasks that were put on an idle CPU at once.
    pub direct: u64,
    /// Tasks put into a queue.
    pub queued: u64,
    /// Woken tasks that displaced the running one.
    pub preempted: u64,
    /// Slices followed by another of the same task.
    pub kept: u64,
    /// Tasks taken out of another cache's queue.
    pub stolen: u64,
    /// Tasks that had no context and were run as they came.
    pub no_context: u64,
    /// Runs that only the kernel's watchdog made necessary.
    pub min_runs: u64,
    pub min_run_ns: u64,
}

impl From<&Cpu> for CpuStats {
    fn from(cpu: &Cpu) -> CpuStats {
        let counts = &cpu.counts;
        let [main_ns, side_ns, background_ns]: [u64; KINDS] = counts.ran_ns;
        CpuStats {
            main_ns,
            side_ns,
            background_ns,
            runs: counts.runs,
            direct: counts.direct,
            queued: counts.queued,
            preempted: counts.preempted,
            kept: counts.kept,
            stolen: counts.stolen,
            no_context: counts.no_context,
            min_runs: counts.min_runs,
            min_run_ns: counts.min_run_ns,
        }
    }
}

impl AddAssign for CpuStats {
    fn add_assign(&mut self, other: CpuStats) {
        self.main_ns += other.main_ns;
        self.side_ns += other.side_ns;
        self.background_ns += other.background_ns;
        self.runs += other.runs;
        self.direct += other.direct;
        self.queued += other.queued;
        self.preempted += other.preempted;
        self.kept += other.kept;
        self.stolen += other.stolen;
        self.no_context += other.no_context;
        self.min_runs += other.min_runs;
        self.min_run_ns += other.min_run_ns;
    }
}

/// One gate: what its tasks use, wait, and are kept from. A task counts for the nearest gate at or
/// above its group alone, so that all gates and [`RestStat`] together are the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GateStat {
    /// The group's cgroup id, which is the inode number of its directory.
    pub cgroup_id: u64,
    pub terms: GateTerms,
    /// Whether it is counted on its own; false: there were more gates than accounts, and its tasks
    /// count for the next gate above or in the rest.
    pub counted: bool,
    /// What its tasks used and how long they waited.
    #[serde(flatten)]
    pub work: WorkStat,
    /// Its group's own quota, if it has or had one.
    pub quota: Option<LimitStat>,
    pub cap: Option<CapStat>,
    /// Runs of its tasks that only the kernel's watchdog made necessary, by its quota and its cap.
    pub min_runs: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stats {
    pub total: CpuStats,
    /// Groups with a quota, and those that had one.
    pub limits: Vec<LimitStat>,
    /// Quotas that are not enforced because there was no room for them.
    pub limits_refused: u32,
    /// The headroom controller, once there was side work.
    pub headroom: Option<HeadroomStats>,
    /// Gates and tasks with caps.
    pub caps: Vec<CapStat>,
    pub gates: Vec<GateStat>,
    /// Tasks without a gate.
    pub rest: RestStat,
    /// The programs, by name.
    pub programs: Vec<ProgramCost>,
}

impl CpuStats {
    /// All possible CPUs together.
    pub(crate) fn read(cpus: &impl MapCore) -> Result<CpuStats, SchedExtError> {
        let mut total = CpuStats::default();
        for cpu in 0..cpus.max_entries() {
            if let Some(cpu) = get::<Cpu>(cpus, &cpu.to_ne_bytes())? {
                total += CpuStats::from(&cpu);
            }
        }
        Ok(total)
    }
}
