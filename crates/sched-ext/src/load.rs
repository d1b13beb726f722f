//! Loading the scheduler, speaking to it, and unloading it.

use std::collections::{BTreeMap, BTreeSet};

use libbpf_rs::skel::Skel;
use libbpf_rs::{Link, MapCore, MapHandle};
use tidegate_law::{HeadroomConfig, HeadroomDecision};
use tidegate_terms::{Tolerance, combine};

use crate::accounts::{Accounts, WorkStat};
use crate::caps::{self, CapStat};
use crate::cost::{self, ProgramCost};
use crate::error::{SchedExtError, refused};
use crate::exit::SchedulerEnd;
use crate::headroom;
use crate::hints;
use crate::intf::{Config, Exit, Gate, LIMITS_MAX, MainSkel, TermsAsk};
use crate::limits::{self, LimitStat};
use crate::machine::Machine;
use crate::object::{self, bytes, delete, get, put};
use crate::rcu::RcuThread;
use crate::stats::{CpuStats, GateStat, Stats};
use crate::support::support;
use crate::terms::{CapTerms, GateTerms, Kind};

/// The fair class's slice on a machine of one CPU.
const SLICE_OF_ONE_NS: u64 = 700_000;

/// Its sched_latency of the seed's time, on a machine of one CPU; 24 ms from eight on.
const PERIOD_OF_ONE_NS: u64 = 6_000_000;

/// What the scheduler is told at the start.
#[derive(Clone, Debug)]
pub struct Options {
    pub machine: Machine,
    /// A task's slice, in nanoseconds: 0.1 to 100 ms.
    pub slice_ns: u64,
    /// By what a hint of -20 brings a deadline forward.
    pub period_ns: u64,
    /// The fair class's default slice, by which a task's own slice is read as a hint; 0 where the
    /// kernel knows no such slices.
    pub fair_slice_ns: u64,
    /// What a CPU takes of a quota at once.
    pub quota_slice_ns: u64,
    /// Idle to keep while there is side work, of the machine, where no gate says.
    pub headroom_ppm: u32,
    pub tuning: HeadroomConfig,
    /// Groups whose cpu.idle is 1 now, by cgroup id: kernels before 6.19 do not tell.
    pub idle_groups: Vec<u64>,
}

impl Options {
    /// The usual ones for a machine. The slice is the fair class's own, which grows with the CPUs
    /// that are online (0.7 ms on one, 2.8 ms from eight on: `sysctl_sched_base_slice` and its
    /// scaling in kernel/sched/fair.c); the simulator's is 3 ms.
    pub fn new(machine: Machine) -> Options {
        let scale = u64::from(1 + machine.online().clamp(1, 8).ilog2());
        Options {
            tuning: HeadroomConfig::kernel(machine.cpus()),
            machine,
            slice_ns: SLICE_OF_ONE_NS * scale,
            period_ns: PERIOD_OF_ONE_NS * scale,
            fair_slice_ns: 0,
            quota_slice_ns: quota_slice_ns(),
            headroom_ppm: 0,
            idle_groups: Vec::new(),
        }
    }
}

impl From<&Options> for Config {
    fn from(options: &Options) -> Config {
        let machine = &options.machine;
        let (hint_slice_ns, hint_from_ns) = hints::tables(options.fair_slice_ns);
        Config {
            slice_ns: options.slice_ns.clamp(100_000, 100_000_000),
            period_ns: options.period_ns,
            quota_slice_ns: options.quota_slice_ns,
            cpus: machine.cpus(),
            llcs: machine.llcs(),
            smt: machine.smt(),
            limits: limits_for(machine.cpus()),
            hint_slice_ns,
            hint_from_ns,
        }
    }
}

/// The sysctl by which the kernel hands out quotas, as it is now.
fn quota_slice_ns() -> u64 {
    const FILE: &str = "/proc/sys/kernel/sched_cfs_bandwidth_slice_us";
    slice_ns_of(&std::fs::read_to_string(FILE).unwrap_or_default())
}

/// The sysctl's own least is 1 us; the law's is 1 ms.
fn slice_ns_of(sysctl: &str) -> u64 {
    const DEFAULT_US: u64 = 5_000;
    let us = sysctl.trim().parse().unwrap_or(DEFAULT_US);
    us.clamp(1_000, 1_000_000) * 1_000
}

/// The length of the table of limits: a silo for each limit and CPU, 32 MiB of them at most.
fn limits_for(cpus: u32) -> u32 {
    ((32 << 20) / (32 * cpus)).clamp(64, LIMITS_MAX)
}

/// The scheduler while it is loaded; dropping it gives all tasks back to the kernel's own.
pub struct SchedExt {
    asked: BTreeMap<u64, GateTerms>,
    accounts: Accounts,
    headroom_ppm: u32,
    tolerance_ppm: u32,
    /// Gates with a cap.
    capped: BTreeSet<u64>,
    // The order matters on drop: the scheduler is detached before the skeleton that owns its
    // programs goes.
    link: Option<Link>,
    skel: MainSkel<'static>,
    // Last: the scheduler's end needs it.
    rcu: Option<RcuThread>,
}

impl SchedExt {
    /// The first and longer part: the kernel has checked the programs, and nothing runs yet. Gates
    /// and mirrors may be set already, and are in force from the first task on.
    ///
    /// # Errors
    /// No sched_ext, another scheduler, no right to it, or the kernel's refusal with the end of its
    /// log.
    pub fn prepare(options: &Options) -> Result<SchedExt, SchedExtError> {
        if let Some(name) = support()?.loaded {
            return Err(SchedExtError::Taken { name });
        }
        if !rustix::process::geteuid().is_root() {
            return Err(SchedExtError::NotRoot);
        }
        let config = Config::from(options);
        let skel = object::load(&config, &options.tuning)?;
        let accounts = MapHandle::try_from(&skel.maps.accounts);
        let accounts = accounts.map_err(|why| refused("open a map", &why))?;
        let mut sched_ext = SchedExt {
            asked: BTreeMap::new(),
            accounts: Accounts::new(accounts),
            headroom_ppm: options.headroom_ppm,
            tolerance_ppm: Tolerance::ONE_PERCENT.ppm(),
            capped: BTreeSet::new(),
            link: None,
            skel,
            rcu: None,
        };
        sched_ext.tell(options)?;
        Ok(sched_ext)
    }

    fn tell(&mut self, options: &Options) -> Result<(), SchedExtError> {
        let maps = &self.skel.maps;
        for (cpu, place) in (0_u32..).zip(options.machine.table()) {
            put(&maps.cpus, &cpu.to_ne_bytes(), bytes(&place))?;
        }
        for (index, near) in (0_u32..).zip(options.machine.nearest()) {
            put(&maps.nearest, &index.to_ne_bytes(), bytes(&near))?;
        }
        let most = maps.idle_groups.max_entries() as usize;
        for id in options.idle_groups.iter().take(most) {
            put(&maps.idle_groups, &id.to_ne_bytes(), &1_u32.to_ne_bytes())?;
        }
        self.next_generation()
    }

    /// The second part: all ordinary tasks are under the scheduler when this returns.
    ///
    /// # Errors
    /// The kernel's refusal, or why the scheduler ended while it began.
    pub fn attach(&mut self) -> Result<(), SchedExtError> {
        self.rcu = RcuThread::raise();
        match self.skel.maps.tidegate.attach_struct_ops() {
            Ok(link) => self.link = Some(link),
            Err(why) => {
                return Err(match self.ended()? {
                    Some(ended) => SchedExtError::Ejected(ended.to_string()),
                    None => refused("hand the scheduler to the kernel", &why),
                });
            }
        }
        match self.ended()? {
            Some(ended) => Err(SchedExtError::Ejected(ended.to_string())),
            None => Ok(()),
        }
    }

    /// Asks something of a group, by its cgroup's id, and of all below it that have no gate of
    /// their own.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn set_gate(&mut self, cgroup_id: u64, terms: &GateTerms) -> Result<(), SchedExtError> {
        let gate = Gate::new(terms, self.accounts.open(cgroup_id)?);
        put(
            &self.skel.maps.gates,
            &cgroup_id.to_ne_bytes(),
            bytes(&gate),
        )?;
        self.asked.insert(cgroup_id, *terms);
        self.set_gate_cap(cgroup_id, terms.cap)?;
        self.next_generation()
    }

    /// What counts where no gate says: idle to keep while there is side work, and what side work
    /// gets in any case.
    pub fn set_machine(
        &mut self,
        headroom_ppm: u32,
        tolerance_ppm: u32,
    ) -> Result<(), SchedExtError> {
        (self.headroom_ppm, self.tolerance_ppm) = (headroom_ppm, tolerance_ppm);
        self.next_generation()
    }

    /// Takes a gate away; one that was never set is none, too.
    pub fn unset_gate(&mut self, cgroup_id: u64) -> Result<(), SchedExtError> {
        self.asked.remove(&cgroup_id);
        delete(&self.skel.maps.gates, &cgroup_id.to_ne_bytes())?;
        self.set_gate_cap(cgroup_id, None)?;
        self.accounts.close(cgroup_id);
        self.next_generation()
    }

    fn set_gate_cap(&mut self, cgroup_id: u64, cap: Option<CapTerms>) -> Result<(), SchedExtError> {
        match cap {
            Some(terms) => {
                caps::ask(&self.skel, cgroup_id, &terms)?;
                self.capped.insert(cgroup_id);
            }
            None if self.capped.remove(&cgroup_id) => {
                caps::ask(&self.skel, cgroup_id, &CapTerms::default())?;
            }
            None => {}
        }
        Ok(())
    }

    /// Says that a group's quota is a copy of what is enforced otherwise and is not to be enforced
    /// here too, or that it is no copy any more. It counts at once, for the value that is in force.
    pub fn set_mirror(&mut self, cgroup_id: u64, mirror: bool) -> Result<(), SchedExtError> {
        limits::set_mirror(&self.skel, cgroup_id, mirror)
    }

    /// Every group looks its gates up again. A program does it: others raise the generation, too
    /// (quotas, `cpu.idle`), and take places in the table of limits, which would be lost where the
    /// whole is read and written back here.
    fn next_generation(&mut self) -> Result<(), SchedExtError> {
        let ask = self.terms();
        object::call(&self.skel.progs.set_terms, bytes(&ask)).map(|_| ())
    }

    /// What the gates ask for together, by the rule of [`combine`].
    fn terms(&self) -> TermsAsk {
        let asked = || self.asked.values();
        let headrooms = asked().filter_map(|terms| terms.headroom_ppm);
        let headroom_ppm = combine::headroom(headrooms, |ppm| *ppm);
        let tolerances = asked().filter_map(|terms| terms.tolerance_ppm);
        let tolerance_ppm = combine::tolerance(tolerances, |ppm| *ppm);
        let side_gates = asked()
            .filter(|terms| terms.kind == Some(Kind::Side))
            .count();
        TermsAsk {
            side_gates: side_gates as u32,
            headroom_ppm: headroom_ppm.unwrap_or(self.headroom_ppm),
            tolerance_ppm: tolerance_ppm.unwrap_or(self.tolerance_ppm),
        }
    }

    /// The headroom controller's last decision; None: there has been no side work.
    pub fn headroom(&self) -> Result<Option<HeadroomDecision>, SchedExtError> {
        headroom::read(&self.skel.maps.headroom_reports)
    }

    /// All limited groups. A number may be a period old: it is brought up to date when a task asks.
    pub fn limits(&self) -> Result<Vec<LimitStat>, SchedExtError> {
        limits::all(&self.skel)
    }

    pub fn caps(&self) -> Result<Vec<CapStat>, SchedExtError> {
        caps::all(&self.skel)
    }

    /// What one gate's tasks used and how long they waited; None: it is no gate, or is not counted
    /// on its own.
    pub fn work(&self, cgroup_id: u64) -> Result<Option<WorkStat>, SchedExtError> {
        self.accounts.work(cgroup_id)
    }

    /// What was counted so far. A number may be a run old; each only grows.
    pub fn stats(&self) -> Result<Stats, SchedExtError> {
        let (limits, caps) = (self.limits()?, self.caps()?);
        let gates = self.asked.iter().map(|(&cgroup_id, &terms)| {
            let work = self.work(cgroup_id)?;
            let quota = limits.iter().find(|limit| limit.cgroup_id == cgroup_id);
            let cap = caps.iter().find(|cap| cap.cgroup_id == cgroup_id);
            Ok(GateStat {
                cgroup_id,
                terms,
                work: work.unwrap_or_default(),
                quota: quota.copied(),
                cap: cap.copied(),
                min_runs: quota.map_or(0, |limit| limit.min_runs)
                    + cap.map_or(0, |cap| cap.min_runs),
            })
        });
        Ok(Stats {
            total: CpuStats::read(&self.skel.maps.cpus)?,
            gates: gates.collect::<Result<_, SchedExtError>>()?,
            limits_refused: limits::refused(&self.skel)?,
            programs: cost::programs(self.skel.object())?,
            limits,
            caps,
        })
    }

    /// Members of run queues that do not exist or are not counted, and tasks whose weight is
    /// counted wrongly: 0 on a machine at rest, and for a moment more while other tasks wake up. It
    /// looks at every task of the machine.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn audit(&mut self) -> Result<u32, SchedExtError> {
        object::call(&self.skel.progs.audit, &[])
    }

    /// Why it is no more; None while it runs.
    pub fn ended(&self) -> Result<Option<SchedulerEnd>, SchedExtError> {
        let exit = get::<Exit>(&self.skel.maps.ended, &0_u32.to_ne_bytes())?;
        Ok(exit.as_ref().and_then(SchedulerEnd::from_kernel))
    }

    /// Gives all tasks back now, and says what the kernel noted of the end.
    pub fn unload(mut self) -> Result<Option<SchedulerEnd>, SchedExtError> {
        self.link = None;
        self.ended()
    }
}

/// Has the kernel check the programs as they are for such a machine, and runs none of them: what
/// the verifier walked.
pub fn verify(options: &Options) -> Result<Vec<ProgramCost>, SchedExtError> {
    support()?;
    let skel = object::load(&Config::from(options), &options.tuning)?;
    cost::programs(skel.object())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::CpuPlace;

    /// As the fair class's: a machine that could have 128 CPUs has the slice of those that it has.
    #[test]
    fn the_slice_grows_with_the_cpus_that_are_online() {
        let slice_ns = |possible, online| {
            let place = |cpu| CpuPlace {
                cpu,
                core: cpu,
                llc: 0,
            };
            let known: Vec<CpuPlace> = (0..online).map(place).collect();
            Options::new(Machine::new(possible, &known).unwrap()).slice_ns
        };
        assert_eq!(slice_ns(1, 1), 700_000);
        assert_eq!(slice_ns(16, 4), 2_100_000);
        assert_eq!(slice_ns(128, 128), 2_800_000);
    }

    #[test]
    fn quotas_are_handed_out_by_the_machines_sysctl() {
        let slices = ["5000\n", "20000\n", "200\n", "9000000\n", ""].map(slice_ns_of);
        let ms = slices.map(|ns| ns / 1_000_000);
        assert_eq!(ms, [5, 20, 1, 1000, 5]);
    }
}
