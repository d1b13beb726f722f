//! Idle kept in space beside the engine on kernel files: the owner's planner ([`tidegate_knobs::space`]) on a simulated machine. The
//! quota is the engine's own; side work is confined to whole cores, as many as hold its allowance.

use std::sync::{Arc, Mutex, PoisonError};

use tidegate_knobs::space::{LOOK_NS, Space, SpaceConfig};
use tidegate_knobs::topology::{Core, Topology};

use super::KnobsLog;
use crate::controller::Controller;
use crate::machine::Machine;
use crate::{CpuId, CpuSet, GroupId, Ns};

/// The controller.
pub struct Cores {
    log: Arc<Mutex<KnobsLog>>,
    side: GroupId,
    space: Space,
    trouble: Option<String>,
}

impl Cores {
    /// Beside the engine whose log this is.
    pub fn new(log: Arc<Mutex<KnobsLog>>, side: GroupId, topology: &crate::Topology) -> Self {
        let core = |nth| {
            let cpus = topology.core_cpus(nth);
            Core {
                llc: topology.llc_of(CpuId(cpus.start)),
                cpus: cpus.collect(),
            }
        };
        let topology = Topology::new((0..topology.cores()).map(core).collect());
        let mut space = Space::new(SpaceConfig::default());
        space.set_cpus(&topology, &topology.cpus());
        Cores {
            log,
            side,
            space,
            trouble: None,
        }
    }
}

impl Controller for Cores {
    fn first_ns(&self) -> Ns {
        LOOK_NS
    }

    fn step(&mut self, machine: &mut Machine) -> Ns {
        let now_ns = machine.now_ns();
        let allowance_ucpu = {
            let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            log.decision.allowance_ucpu
        };
        if let Some(cpus) = self.space.step(now_ns, allowance_ucpu) {
            let mut set = CpuSet::EMPTY;
            for cpu in cpus {
                set.insert(CpuId(cpu));
            }
            match machine.set_cpuset(self.side, set) {
                Ok(()) => {
                    let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
                    log.cpusets.push((now_ns, self.side, set));
                }
                Err(why) => {
                    self.space.forget();
                    self.trouble = Some(why.to_string());
                }
            }
        }
        now_ns + LOOK_NS
    }

    fn trouble(&self) -> Option<String> {
        self.trouble.clone()
    }

    fn name(&self) -> &str {
        "whole cores"
    }
}
