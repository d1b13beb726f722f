//! Idle kept by the cpuset by the engine on kernel files: the agent's planner ([`tidegate_engine::cpuset_planner`]) and the agent's choice of what is
//! kept where ([`tidegate_engine::domain`]) on a simulated machine.

use tidegate_cgroup::topology::{Core, Topology};
use tidegate_engine::control::Control;
use tidegate_engine::cpuset_planner::{
    CpusetAllowance, CpusetPlanner, CpusetPlannerConfig, DOMAIN_POLL_NS, POLL_NS, Release,
};
use tidegate_engine::domain::{Asked, DomainInputs, Keeps, Resolved, resolve};

use super::terms::{Compiled, Side};
use crate::machine::Machine;
use crate::{CpuId, CpuSet, GroupId, Ns, SimError};

/// Main's time by CPU is looked at this often.
const MAIN_POLL_NS: Ns = 1_000_000_000;

/// Side work's CPUs.
pub(super) struct Cores {
    pub(super) side: GroupId,
    planner: CpusetPlanner,
    /// The machine's allowance is held by whole cores.
    whole: bool,
    /// No idle is to be kept: side work has every CPU, in the idle class.
    pub(super) is_free: bool,
    release: Release,
    allowed: CpuSet,
    poll_ns: Ns,
    /// The next poll.
    pub(super) due_ns: Ns,
    main_due_ns: Ns,
    rooms_ucpu: Vec<u64>,
    main_ns: Vec<u64>,
}

/// What every CPU set of the scenario comes to, as the agent would find it.
pub(super) fn resolved(compiled: &Compiled, cpus: u32) -> Resolved {
    let all = || (0..cpus).collect::<Vec<u32>>();
    let list = |set: &Option<CpuSet>| set.as_ref().map_or_else(all, numbers);
    let asked: Vec<Asked> = compiled
        .asked
        .iter()
        .map(|(group, set, headroom_ppm)| Asked {
            cpus: set.as_ref().map(numbers),
            headroom_ppm: *headroom_ppm,
            from: format!("group {group}"),
        })
        .collect();
    let mut side = compiled.side.iter();
    let inputs = DomainInputs {
        online: all(),
        root: side.next().map(|root| list(&root.cpus)),
        in_place: side
            .map(|one| (one.group.to_string(), list(&one.cpus)))
            .collect(),
        by_cpu: None,
        refused: None,
    };
    resolve(&asked, &inputs)
}

impl Cores {
    /// Beside the loop, where anything is kept by the cpuset; `whole` is the agent's `cpuset = on`.
    pub(super) fn new(
        side: &[Side],
        resolved: &Resolved,
        topology: &crate::Topology,
        whole: bool,
    ) -> Option<Self> {
        let parts: Vec<Vec<u32>> = resolved
            .domains
            .iter()
            .filter(|domain| domain.keeps == Keeps::Cpuset)
            .map(|domain| domain.cpus.clone())
            .collect();
        let side = side.first().filter(|_| whole || !parts.is_empty())?;
        let core = |nth| {
            let cpus = topology.core_cpus(nth);
            Core {
                llc: topology.llc_of(CpuId(cpus.start)),
                cpus: cpus.collect(),
            }
        };
        let topology = Topology::new((0..topology.cores()).map(core).collect());
        let allowed = side.cpus.as_ref().map_or_else(|| topology.cpus(), numbers);
        let mut planner = CpusetPlanner::new(CpusetPlannerConfig::default());
        planner.set_cpus(&topology, &allowed, &parts);
        let poll_ns = if parts.is_empty() {
            POLL_NS
        } else {
            DOMAIN_POLL_NS
        };
        Some(Self {
            side: side.group,
            planner,
            whole,
            is_free: false,
            release: Release::default(),
            allowed: allowed.into_iter().map(CpuId).collect(),
            poll_ns,
            due_ns: poll_ns,
            main_due_ns: MAIN_POLL_NS,
            rooms_ucpu: Vec::new(),
            main_ns: Vec::new(),
        })
    }

    /// One poll; the set that was written, if any.
    pub(super) fn step(
        &mut self,
        machine: &mut Machine,
        control: &mut Control,
    ) -> Result<Option<(GroupId, CpuSet)>, SimError> {
        let now_ns = machine.now_ns();
        self.due_ns = now_ns + self.poll_ns;
        if now_ns >= self.main_due_ns {
            self.main_due_ns = now_ns + MAIN_POLL_NS;
            control.main_by_cpu(&mut self.main_ns);
            self.planner.note_main(&self.main_ns);
        }
        control.rooms_ucpu(&mut self.rooms_ucpu);
        let is_due = self.release.is_due(control.keeps_idle(), now_ns);
        let is_free = self.whole && self.rooms_ucpu.is_empty() && is_due;
        if is_free {
            let is_new = !std::mem::replace(&mut self.is_free, true);
            return if is_new {
                self.free(machine, control)
            } else {
                Ok(None)
            };
        }
        self.is_free = false;
        let room = CpusetAllowance {
            whole_ucpu: control.quota_room_ucpu().filter(|_| self.whole),
            domains_ucpu: &self.rooms_ucpu,
        };
        let Some(cpus) = self.planner.step(now_ns, room) else {
            return Ok(None);
        };
        let mut set = CpuSet::EMPTY;
        for cpu in cpus {
            set.insert(CpuId(cpu));
        }
        machine
            .set_cpuset(self.side, set)
            .inspect_err(|_| self.planner.forget())?;
        control.set_confined(true);
        Ok(Some((self.side, set)))
    }
}

impl Cores {
    /// Every CPU is side work's again.
    fn free(
        &mut self,
        machine: &mut Machine,
        control: &mut Control,
    ) -> Result<Option<(GroupId, CpuSet)>, SimError> {
        control.set_confined(false);
        self.planner.forget();
        machine.set_cpuset(self.side, self.allowed)?;
        Ok(Some((self.side, self.allowed)))
    }
}

fn numbers(set: &CpuSet) -> Vec<u32> {
    set.iter().map(|cpu| cpu.0).collect()
}
