//! Policies: who decides how much side work may use. One row each, by name; `engine.policy` and
//! `--policy` choose.

use crate::controller::Controller;
use crate::engines::cgroup::{CgroupConfig, CgroupEngine, EngineTerms, Sensing};
use crate::ids::GroupId;
use crate::policies::{self, Katalyst, Koordlet, PolicyController, Sideloader, Sides};

/// What a policy has to work with.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The group that all side work is below: the one that a policy limits.
    pub side_root: GroupId,
    pub main: Vec<GroupId>,
    /// What is left for Tidegate's own engine to do.
    pub compiled: EngineTerms,
    pub headroom_ppm: u32,
    pub sense: Sensing,
    /// CPUs of the machine.
    pub cpus: u32,
    /// Hardware threads of a core.
    pub threads_per_core: u32,
    /// Seed of what is random in an engine: its lateness and the delays of its writes.
    pub seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SideRoot {
    /// In the idle class (`cpu.idle`), as Tidegate's own.
    Idle,
    Weight(u32),
    /// In the idle class, under the quota `engine.quota`.
    Quota,
}

pub struct Policy {
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// How the group that it limits competes.
    pub side_root: SideRoot,
    /// Its controller; none when the side root alone is the policy.
    pub make: fn(&Setup) -> Option<Box<dyn Controller>>,
}

/// Tidegate's own policy, which compiles every term.
pub const TIDEGATE: &str = "tidegate";

const POLICIES: &[Policy] = &[
    Policy {
        name: TIDEGATE,
        about: "Tidegate's own control step and law",
        side_root: SideRoot::Idle,
        make: |setup| {
            let config = CgroupConfig {
                sensing: setup.sense,
                whole_cores: false,
                seed: setup.seed,
            };
            Some(Box::new(CgroupEngine::new(config, &setup.compiled)))
        },
    },
    Policy {
        name: "idle",
        about: "the idle class alone (cpu.idle): no limit",
        side_root: SideRoot::Idle,
        make: |_| None,
    },
    Policy {
        name: "weight-1",
        about: "the least weight alone: no limit",
        side_root: SideRoot::Weight(1),
        make: |_| None,
    },
    Policy {
        name: "static",
        about: "the idle class and a constant quota (engine.quota)",
        side_root: SideRoot::Quota,
        make: |_| None,
    },
    Policy {
        name: "sideloader",
        about: "the law of resctl-demo's sideloader: once a second, by means of 1 and 5 s",
        side_root: SideRoot::Idle,
        make: |setup| {
            let law = Sideloader::new(setup.cpus, setup.headroom_ppm.into());
            Some(setup.published(Box::new(law)))
        },
    },
    Policy {
        name: "koordlet",
        about: "the law of Koordinator's koordlet: a quota, once a second",
        side_root: SideRoot::Idle,
        make: |setup| Some(setup.published(Box::new(Koordlet::new(setup.cpus)))),
    },
    Policy {
        name: "katalyst",
        about: "the law of Katalyst: a pool of CPUs, every 5 s",
        side_root: SideRoot::Idle,
        make: |setup| {
            let law = Katalyst::new(setup.cpus, setup.threads_per_core);
            Some(setup.published(Box::new(law)))
        },
    },
];

impl Setup {
    fn published(&self, law: Box<dyn policies::Policy>) -> Box<dyn Controller> {
        let sides = Sides {
            side: vec![self.side_root],
            main: self.main.clone(),
        };
        Box::new(PolicyController::new(law, sides))
    }
}

/// Every policy, in the order in which messages list them.
pub fn policies() -> impl Iterator<Item = &'static Policy> {
    POLICIES.iter()
}

/// The policy of this name.
pub fn policy(name: &str) -> Option<&'static Policy> {
    POLICIES.iter().find(|policy| policy.name == name)
}
