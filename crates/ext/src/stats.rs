//! What the scheduler counts, and what its callbacks cost.

use std::ops::AddAssign;
use std::os::fd::{FromRawFd, OwnedFd};

use libbpf_rs::{AsRawLibbpf, Object, libbpf_sys};
use serde::Serialize;

use crate::accounts::{GateStat, RestStat};
use crate::caps::CapStat;
use crate::error::ExtError;
use crate::headroom::HeadroomStats;
use crate::intf::{Config, Cpu, KINDS};
use crate::limits::LimitStat;
use crate::load::{Ext, Options};
use crate::object::{self, get, refused};
use crate::support::support;

/// Counts since the scheduler was loaded, of one CPU or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CpuStats {
    /// CPU time of main and neutral work.
    pub main_ns: u64,
    /// CPU time of side work.
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
    /// What they took.
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

/// What the kernel says of one program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProgramCost {
    /// Its name, which is the callback's.
    pub name: String,
    /// Instructions that the verifier walked.
    pub verified_insns: u32,
    /// Calls and their time while they were counted ([`count_cost`], or `kernel.bpf_stats_enabled`).
    pub runs: u64,
    /// CPU time of all calls.
    pub run_ns: u64,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// All CPUs together.
    pub total: CpuStats,
    /// Groups with a quota, and those that had one.
    pub limits: Vec<LimitStat>,
    /// Quotas that are not enforced because there was no room for them.
    pub limits_refused: u32,
    /// The headroom controller, once there was side work.
    pub headroom: Option<HeadroomStats>,
    /// Gates and tasks with caps.
    pub caps: Vec<CapStat>,
    /// The gates.
    pub gates: Vec<GateStat>,
    /// Tasks without a gate.
    pub rest: RestStat,
    /// The programs, by name.
    pub programs: Vec<ProgramCost>,
}

/// The kernel counts the times of programs, of all on the machine, as long as this lives; it costs each call two readings of
/// the clock.
#[derive(Debug)]
pub struct CountedCost {
    _descriptor: OwnedFd,
}

/// Has the kernel count what programs cost (as `kernel.bpf_stats_enabled` does, but ended with the process at the latest).
pub fn count_cost() -> Result<CountedCost, ExtError> {
    // SAFETY: a system call without pointers.
    let descriptor = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    if descriptor < 0 {
        let why = libbpf_rs::Error::from_raw_os_error(-descriptor);
        return Err(refused("have the cost of programs counted", &why));
    }
    // SAFETY: the descriptor is new, and no other code has it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    Ok(CountedCost {
        _descriptor: descriptor,
    })
}

impl Ext {
    /// What was counted so far. A number may be a run old; each only grows.
    pub fn stats(&self) -> Result<Stats, ExtError> {
        let mut total = CpuStats::default();
        for cpu in 0..self.possible_cpus {
            if let Some(cpu) = get::<Cpu>(&self.cpus, &cpu.to_ne_bytes())? {
                total += CpuStats::from(&cpu);
            }
        }
        let (limits, caps) = (self.limits()?, self.caps()?);
        Ok(Stats {
            total,
            gates: self.gates_with(&limits, &caps)?,
            rest: self.rest()?,
            limits,
            limits_refused: self.limits_refused()?,
            headroom: self.headroom()?,
            caps,
            programs: self.cost()?,
        })
    }

    /// What each program takes; times only while they are counted ([`count_cost`]).
    pub fn cost(&self) -> Result<Vec<ProgramCost>, ExtError> {
        programs(&self.object)
    }
}

/// Has the kernel check the programs as they are for such a machine, and runs none of them: what the verifier walked.
pub fn verify(options: &Options) -> Result<Vec<ProgramCost>, ExtError> {
    support()?;
    programs(&object::load(
        &Config::from(options),
        &options.tuning,
        options.partial,
    )?)
}

fn programs(object: &Object) -> Result<Vec<ProgramCost>, ExtError> {
    let mut costs = Vec::new();
    for program in object.progs() {
        // SAFETY: the program is the object's, which lives as long as the borrow.
        let descriptor =
            unsafe { libbpf_sys::bpf_program__fd(program.as_libbpf_object().as_ptr()) };
        // A callback that this kernel does not know was not loaded.
        if descriptor < 0 {
            continue;
        }
        let mut info = libbpf_sys::bpf_prog_info::default();
        let mut size = size_of_val(&info) as u32;
        // SAFETY: the descriptor belongs to `object`; the structure is as long as `size` says, and zeros ask for no
        // arrays to be filled.
        let failed =
            unsafe { libbpf_sys::bpf_prog_get_info_by_fd(descriptor, &mut info, &mut size) };
        if failed != 0 {
            let why = libbpf_rs::Error::from_raw_os_error(-failed);
            return Err(refused("ask for a program's cost", &why));
        }
        costs.push(ProgramCost {
            name: program.name().to_string_lossy().into_owned(),
            verified_insns: info.verified_insns,
            runs: info.run_cnt,
            run_ns: info.run_time_ns,
        });
    }
    costs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(costs)
}
