//! Idle kept by the cpuset by the engine on kernel files: the agent's planner
//! ([`tidegate_engine::cpuset_planner`]) on a simulated machine.

use tidegate_cgroup::topology::{Core, Topology};
use tidegate_engine::control::Control;
use tidegate_engine::cpuset_planner::{CpusetPlanner, POLL_NS, Release};

use super::terms::Side;
use crate::machine::Machine;
use crate::{CpuId, CpuSet, GroupId, Ns, SimError};

/// Main's time by CPU is looked at this often.
const MAIN_POLL_NS: Ns = 1_000_000_000;

/// Side work's CPUs.
pub(super) struct Cores {
    pub(super) side: GroupId,
    planner: CpusetPlanner,
    /// No idle is to be kept: side work has every CPU, in the idle class.
    pub(super) is_free: bool,
    release: Release,
    allowed: CpuSet,
    pub(super) due_ns: Ns,
    main_due_ns: Ns,
    main_ns: Vec<u64>,
}

impl Cores {
    /// Beside the loop, where there is side work: the agent's `cpuset = on`.
    pub(super) fn new(side: &[Side], topology: &crate::Topology) -> Option<Self> {
        let side = side.first()?;
        let core = |nth| {
            let cpus = topology.core_cpus(nth);
            Core {
                llc: topology.llc_of(CpuId(cpus.start)),
                cpus: cpus.collect(),
            }
        };
        let topology = Topology::new((0..topology.cores()).map(core).collect());
        let allowed = side.cpus.as_ref().map_or_else(|| topology.cpus(), numbers);
        let mut planner = CpusetPlanner::default();
        planner.set_cpus(&topology, &allowed);
        Some(Self {
            side: side.group,
            planner,
            is_free: false,
            release: Release::default(),
            allowed: allowed.into_iter().map(CpuId).collect(),
            due_ns: POLL_NS,
            main_due_ns: MAIN_POLL_NS,
            main_ns: Vec::new(),
        })
    }

    /// One poll.
    pub(super) fn step(
        &mut self,
        machine: &mut Machine,
        control: &Control,
    ) -> Result<(), SimError> {
        let now_ns = machine.now_ns();
        self.due_ns = now_ns + POLL_NS;
        if now_ns >= self.main_due_ns {
            self.main_due_ns = now_ns + MAIN_POLL_NS;
            control.main_by_cpu(&mut self.main_ns);
            self.planner.note_main(&self.main_ns);
        }
        if self.release.is_due(control.keeps_idle(), now_ns) {
            if !std::mem::replace(&mut self.is_free, true) {
                // Every CPU is side work's again.
                self.planner.forget();
                machine.set_cpuset(self.side, self.allowed)?;
            }
            return Ok(());
        }
        self.is_free = false;
        let Some(cpus) = self.planner.step(now_ns, control.room_ucpu()) else {
            return Ok(());
        };
        let set = cpus.into_iter().map(CpuId).collect();
        let written = machine.set_cpuset(self.side, set);
        written.inspect_err(|_| self.planner.forget())
    }
}

fn numbers(set: &CpuSet) -> Vec<u32> {
    set.iter().map(|cpu| cpu.0).collect()
}
