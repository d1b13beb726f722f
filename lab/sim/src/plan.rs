//! How a scenario's groups are laid out on the machine: as they are written, or as Tidegate would
//! lay them out.
//!
//! With an engine on kernel files, all side work is limited at one place. When the scenario has
//! several side groups with no side group above them, they are put below one of ours
//! ([`SIDE_ROOT`]), as `tidegate run --side` does.

use tidegate_terms::combine;

use crate::config::Scheduler;
use crate::engines::cgroup::{EngineTerms, burst_room_us, compile};
use crate::ids::GroupId;
use crate::policies::quota_us;
use crate::program::{Ctx, Op, TaskSpec};
use crate::registry::{self, SideRoot};
use crate::scenario::{EngineKind, GroupRef, Scenario};
use crate::spec::{Bandwidth, Class, GroupSpec};

/// The name of the group that side groups are put below when there are several.
pub const SIDE_ROOT: &str = "tidegate-side";

#[derive(Clone, Debug)]
pub struct Plan {
    /// Groups in the order in which they are added: their numbers count from 1, as the root is 0.
    pub specs: Vec<GroupSpec>,
    /// The slice of each workload's tasks.
    pub slices: Vec<Option<u64>>,
    /// The group that a policy limits, when there is side work.
    pub side_root: Option<GroupId>,
    pub main: Vec<GroupId>,
    /// Idle to keep for main's groups together.
    pub headroom_ppm: u32,
    /// What is left for Tidegate's engine on kernel files to do.
    pub compiled: EngineTerms,
    /// How many groups of ours stand before the scenario's.
    offset: usize,
}

impl Plan {
    pub fn new(scenario: &Scenario) -> Plan {
        let tops: Vec<usize> = (0..scenario.groups.len())
            .filter(|&at| class_of(scenario, Some(at)) == Class::Side)
            .filter(|&at| class_of(scenario, scenario.groups[at].parent) != Class::Side)
            .collect();
        let limits = scenario.engine.kind == EngineKind::Cgroup;
        let ours = limits && tops.len() > 1;
        let mut plan = Plan {
            specs: Vec::new(),
            slices: Vec::new(),
            side_root: None,
            main: Vec::new(),
            headroom_ppm: 0,
            compiled: EngineTerms::default(),
            offset: usize::from(ours),
        };
        if ours {
            plan.specs.push(GroupSpec {
                class: Class::Side,
                ..GroupSpec::new(SIDE_ROOT, GroupId::ROOT)
            });
        }
        for (at, group) in scenario.groups.iter().enumerate() {
            let mut spec = group.spec.clone();
            spec.parent = if ours && tops.contains(&at) {
                GroupId(1)
            } else {
                plan.id(group.parent)
            };
            if spec.class == Class::Main {
                plan.main.push(plan.id(Some(at)));
            }
            plan.specs.push(spec);
        }
        for (at, group) in scenario.groups.iter().enumerate() {
            if let (true, Some(mut limit)) = (group.burst_max, group.spec.bandwidth) {
                let id = plan.id(Some(at));
                let room_us = burst_room_us(&plan.specs, id, limit);
                limit.burst_us = limit.burst_us.min(room_us);
                plan.specs[id.index() - 1].bandwidth = Some(limit);
            }
        }
        let mains = plan.specs.iter().filter(|spec| spec.class == Class::Main);
        let headroom_ppm = combine::headroom(mains.map(|spec| spec.headroom_ppm), |ppm| *ppm);
        plan.headroom_ppm = headroom_ppm.unwrap_or(0);
        plan.side_root = match tops.first() {
            Some(_) if ours => Some(GroupId(1)),
            Some(&at) => Some(plan.id(Some(at))),
            None => None,
        };
        if limits {
            plan.lay_side_root(scenario);
        }
        plan.slices = scenario
            .workloads
            .iter()
            .map(|workload| workload.common.slice_ns)
            .collect();
        if limits && scenario.engine.policy == registry::TIDEGATE {
            plan.compile(scenario);
        }
        plan
    }

    /// Compiles terms as the agent does: constant values are written into groups and slices here,
    /// the rest is left to the engine. A hint becomes a slice where the scheduler has slices.
    fn compile(&mut self, scenario: &Scenario) {
        let mut tasks: Vec<TaskSpec> = scenario
            .workloads
            .iter()
            .zip(&self.slices)
            .map(|(workload, slice_ns)| TaskSpec {
                latency: workload.common.latency,
                slice_ns: *slice_ns,
                ..TaskSpec::new(
                    "",
                    self.id(workload.group),
                    Box::new(|_: &mut Ctx<'_>| Op::Exit),
                )
            })
            .collect();
        let (tick_ns, base_slice_ns) = (scenario.machine.tick_ns, Plan::base_slice_ns(scenario));
        // Without slices to give, any base will do.
        let base_ns = base_slice_ns.unwrap_or(3_000_000);
        self.compiled = compile(&mut self.specs, &mut tasks, base_ns, tick_ns);
        if base_slice_ns.is_some() {
            self.slices = tasks.iter().map(|task| task.slice_ns).collect();
        }
    }

    /// The side root competes as the policy says.
    fn lay_side_root(&mut self, scenario: &Scenario) {
        let row = registry::policy(&scenario.engine.policy);
        let root = self
            .side_root
            .and_then(|id| self.specs.get_mut(id.index() - 1));
        let (Some(row), Some(root)) = (row, root) else {
            return;
        };
        match row.side_root {
            SideRoot::Idle => root.idle = true,
            SideRoot::Weight(weight) => {
                root.idle = false;
                root.weight = weight;
            }
            SideRoot::Quota => {
                let cpus = scenario.machine.topology.cpus();
                let quota_us = quota_us(scenario.engine.quota_ppm.into(), cpus, 100_000);
                root.idle = true;
                root.bandwidth = Some(Bandwidth::limit(quota_us, 100_000));
            }
        }
    }

    /// A scenario's group on the machine.
    pub fn id(&self, group: GroupRef) -> GroupId {
        // At most as many groups as lines in a file.
        group.map_or(GroupId::ROOT, |at| GroupId((at + self.offset + 1) as u32))
    }

    /// Names by number, the root's first.
    pub fn names(&self) -> Vec<String> {
        let mut names = vec!["root".to_owned()];
        names.extend(self.specs.iter().map(|spec| spec.name.clone()));
        names
    }

    /// Classes by number, each group's own or that of the nearest group above which has one.
    pub fn classes(&self) -> Vec<Class> {
        let mut classes = vec![Class::Neutral];
        for spec in &self.specs {
            classes.push(match spec.class {
                // Parents come first, so theirs is known.
                Class::Neutral => classes[spec.parent.index()],
                own => own,
            });
        }
        classes
    }

    /// The base slice of the scenario's scheduler, where it has one.
    pub fn base_slice_ns(scenario: &Scenario) -> Option<u64> {
        match &scenario.machine.scheduler {
            Scheduler::Eevdf(config) => Some(config.base_slice_ns),
            Scheduler::Cfs(_) => None,
        }
    }
}

/// The class of a group: its own, or that of the nearest group above which has one.
fn class_of(scenario: &Scenario, group: GroupRef) -> Class {
    let lineage = std::iter::successors(group, |at| scenario.groups[*at].parent);
    let mut classes = lineage.map(|at| scenario.groups[at].spec.class);
    let own = classes.find(|class| *class != Class::Neutral);
    own.unwrap_or(Class::Neutral)
}
