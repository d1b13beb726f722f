//! Machines, tasks and scenarios that several tests use.

use tidegate_sim::outcome::Outcome;
use tidegate_sim::run::Stage;
use tidegate_sim::scenario::{Override, Scenario, Text};
use tidegate_sim::{
    Bandwidth, Costs, Ctx, GroupId, GroupSpec, Machine, MachineConfig, Op, Program, TaskId,
    TaskSpec, Topology,
};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;

/// A machine that takes no time of its own and checks its invariants.
pub fn config(topology: Topology) -> MachineConfig {
    let mut config = MachineConfig::new(topology.cpus());
    config.topology = topology;
    config.costs = Costs::FREE;
    config.check = true;
    config
}

pub fn machine(cpus: u32) -> Machine {
    Machine::new(config(Topology::new(cpus, 1, cpus))).unwrap()
}

pub fn hog() -> Box<dyn Program> {
    let work_ns = 10 * SECOND;
    Box::new(move |_: &mut Ctx<'_>| Op::Run { work_ns })
}

/// Runs a while, sleeps a while, over and over.
pub fn napper(work_ns: u64, for_ns: u64) -> Box<dyn Program> {
    let mut runs = false;
    Box::new(move |_: &mut Ctx<'_>| {
        runs = !runs;
        if runs {
            Op::Run { work_ns }
        } else {
            Op::Sleep { for_ns }
        }
    })
}

pub fn spawn(m: &mut Machine, group: GroupId, program: Box<dyn Program>) -> TaskId {
    m.spawn(TaskSpec::new("task", group, program)).unwrap()
}

/// A group below another.
pub fn group(m: &mut Machine, parent: GroupId, weight: u32) -> GroupId {
    let spec = GroupSpec {
        weight,
        ..GroupSpec::new("group", parent)
    };
    m.add_group(spec).unwrap()
}

/// A group under a quota.
pub fn limited(m: &mut Machine, parent: GroupId, quota_us: u64, period_us: u64) -> GroupId {
    let spec = GroupSpec {
        bandwidth: Some(Bandwidth::limit(quota_us, period_us)),
        ..GroupSpec::new("limited", parent)
    };
    m.add_group(spec).unwrap()
}

#[track_caller]
pub fn near(got: u64, want: u64, by: u64) {
    let off = got.abs_diff(want);
    assert!(off <= by, "{got} is not within {by} of {want}");
}

pub fn text(toml: &str) -> Text {
    Text {
        shown: "web.toml".into(),
        name: "web".into(),
        text: toml.into(),
    }
}

/// A scenario with values laid over it.
pub fn scenario(text: &Text, sets: &[(&str, &str)]) -> Scenario {
    let overrides: Vec<Override> = sets
        .iter()
        .map(|(key, value)| Override::new(key, value))
        .collect();
    Scenario::resolve(text, &overrides).unwrap_or_else(|errors| panic!("{}: {errors}", text.name))
}

pub fn run(scenario: &Scenario) -> Outcome {
    let stage = Stage::new(scenario).unwrap_or_else(|error| panic!("{}: {error}", scenario.name));
    let ran = stage.run(scenario, &mut |_| {});
    ran.unwrap_or_else(|error| panic!("{}: {error}", scenario.name))
}
