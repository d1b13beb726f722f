//! Policies: who decides how much side work may use. One row each, by name; `engine.policy` and `--policy` choose.

use crate::controller::Controller;
use crate::ids::GroupId;
use crate::plan::Plan;
use crate::scenario::{Engine, EngineKind, Scenario, Sense};

/// What a policy has to work with.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The group that all side work is below: the one that a policy limits.
    pub side_root: GroupId,
    /// Main's groups.
    pub main: Vec<GroupId>,
    /// Idle to keep.
    pub headroom_ppm: u32,
    /// What side work gets at least.
    pub tolerance_ppm: u32,
    /// How use is sensed.
    pub sense: Sense,
    /// Time between two steps, where the policy leaves it open.
    pub step_ns: Option<u64>,
    /// CPUs of the machine.
    pub cpus: u32,
    /// Seed of what is random in an engine (delays of its writes).
    pub seed: u64,
}

/// How the side root competes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SideRoot {
    /// In the idle class (`cpu.idle`), as Tidegate's own.
    Idle,
    /// At this weight.
    Weight(u32),
}

/// A policy.
pub struct Policy {
    /// Its name.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// How the group that it limits competes.
    pub side_root: SideRoot,
    /// Its controller; none when the side root alone is the policy.
    pub make: fn(&Setup) -> Option<Box<dyn Controller>>,
}

const POLICIES: &[Policy] = &[
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
];

/// Every policy, in the order in which messages list them.
pub fn policies() -> impl Iterator<Item = &'static Policy> {
    POLICIES.iter()
}

/// The policy of this name.
pub fn policy(name: &str) -> Option<&'static Policy> {
    POLICIES.iter().find(|policy| policy.name == name)
}

/// The controllers that a scenario asks for.
pub fn controllers(plan: &Plan, scenario: &Scenario) -> Vec<Box<dyn Controller>> {
    let (Some(side_root), EngineKind::Knobs) = (plan.side_root, scenario.engine.kind) else {
        return Vec::new();
    };
    let setup = Setup {
        side_root,
        main: plan.main.clone(),
        headroom_ppm: plan.headroom_ppm,
        tolerance_ppm: plan.tolerance_ppm,
        sense: scenario.engine.sense,
        step_ns: scenario.engine.step_ns,
        cpus: scenario.machine.topology.cpus(),
        seed: scenario.machine.seed,
    };
    let row = policy(&scenario.engine.policy);
    row.and_then(|row| (row.make)(&setup)).into_iter().collect()
}

/// Engine and policy in words.
pub fn label(engine: &Engine) -> String {
    match engine.kind {
        EngineKind::Knobs => format!("knobs/{}", engine.policy),
        kind => kind.name().to_owned(),
    }
}
