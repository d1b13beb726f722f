//! What the scheduler counts, all of it.

use libbpf_rs::MapCore;
use serde::Serialize;

use crate::accounts::WorkStat;
use crate::caps::CapStat;
use crate::cost::ProgramCost;
use crate::error::SchedExtError;
use crate::intf::Cpu;
use crate::limits::LimitStat;
use crate::object::get;
use crate::terms::GateTerms;

/// Counts since the scheduler was loaded, of all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CpuStats {
    /// Tasks that had no context and were run as they came.
    pub no_context: u64,
    /// Runs that only the kernel's watchdog made necessary.
    pub min_runs: u64,
}

/// One gate: what its tasks use, wait, and are kept from. A task counts for the nearest gate at or
/// above its group alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GateStat {
    /// The group's cgroup id, which is the inode number of its directory.
    pub cgroup_id: u64,
    pub terms: GateTerms,
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
    /// Gates and tasks with caps.
    pub caps: Vec<CapStat>,
    pub gates: Vec<GateStat>,
    /// The programs, by name.
    pub programs: Vec<ProgramCost>,
}

impl CpuStats {
    /// All possible CPUs together.
    pub(crate) fn read(cpus: &impl MapCore) -> Result<CpuStats, SchedExtError> {
        let mut total = CpuStats::default();
        for cpu in 0..cpus.max_entries() {
            if let Some(cpu) = get::<Cpu>(cpus, &cpu.to_ne_bytes())? {
                total.no_context += cpu.no_context;
                total.min_runs += cpu.min_runs;
            }
        }
        Ok(total)
    }
}
