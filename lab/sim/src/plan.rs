//! How a scenario's groups are laid out on the machine: as they are written, or as Tidegate would
//! lay them out.
//!
//! With an engine on kernel files, all side work is limited at one place. When the scenario has
//! several side groups with no side group above them, they are put below one of ours
//! ([`SIDE_ROOT`]), as `tidegate run --side` does.

use tidegate_terms::Terms;

use crate::config::base_slice_ns;
use crate::engines::cgroup::{EngineTerms, compile, hinted_slice_ns, write_limits};
use crate::ids::GroupId;
use crate::scenario::{GroupRef, Scenario};
use crate::spec::{Class, GroupSpec};

/// The name of the group that side groups are put below when there are several.
pub const SIDE_ROOT: &str = "tidegate-side";

#[derive(Clone, Debug)]
pub struct Plan {
    /// Groups in the order in which they are added: their numbers count from 1, as the root is 0.
    pub specs: Vec<GroupSpec>,
    /// Their terms.
    pub terms: Vec<Terms>,
    /// The slice of each workload's tasks.
    pub slices: Vec<Option<u64>>,
    /// What is left for Tidegate's engine on kernel files to do.
    pub compiled: EngineTerms,
    /// How many groups of ours stand before the scenario's.
    offset: usize,
}

impl Plan {
    pub fn new(scenario: &Scenario) -> Plan {
        let class = |group: GroupRef| {
            group.map_or(Class::Neutral, |at| scenario.groups[at].terms.class.value)
        };
        let is_top = |at: &usize| {
            class(Some(*at)) == Class::Side && class(scenario.groups[*at].parent) != Class::Side
        };
        let tops_of_side: Vec<usize> = (0..scenario.groups.len()).filter(is_top).collect();
        let is_tidegate = scenario.engine.kind.is_tidegate();
        let ours = is_tidegate && tops_of_side.len() > 1;
        let mut plan = Plan {
            specs: Vec::new(),
            terms: Vec::new(),
            slices: Vec::new(),
            compiled: EngineTerms::default(),
            offset: usize::from(ours),
        };
        if ours {
            plan.specs.push(GroupSpec::new(SIDE_ROOT, GroupId::ROOT));
            plan.terms.push(Terms::of_class(Class::Side));
        }
        for (at, group) in scenario.groups.iter().enumerate() {
            let mut spec = group.spec.clone();
            spec.parent = if ours && tops_of_side.contains(&at) {
                GroupId(1)
            } else {
                plan.id(group.parent)
            };
            plan.specs.push(spec);
            plan.terms.push(group.terms.clone());
        }
        plan.slices = scenario
            .workloads
            .iter()
            .map(|workload| workload.common.slice_ns)
            .collect();
        if is_tidegate {
            plan.compile(scenario);
            // As the agent starts side work: in the idle class.
            let root = tops_of_side.first().map(|at| match ours {
                true => GroupId(1),
                false => plan.id(Some(*at)),
            });
            if let Some(root) = root {
                plan.specs[root.index() - 1].idle = true;
            }
        } else {
            write_limits(&mut plan.specs, &plan.terms, &[]);
        }
        plan
    }

    /// Compiles terms as the agent does: constant values are written into groups and slices here,
    /// the rest is left to the engine. A hint becomes a slice.
    fn compile(&mut self, scenario: &Scenario) {
        let machine = &scenario.machine;
        self.compiled = compile(&mut self.specs, &self.terms, machine.tick_ns);
        let base_ns = base_slice_ns(machine.topology.cpus());
        for (at, workload) in scenario.workloads.iter().enumerate() {
            let hint = (self.id(workload.group), workload.hint);
            let hinted = || hinted_slice_ns(&self.specs, &self.terms, hint, base_ns);
            self.slices[at] = self.slices[at].or_else(hinted);
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

    /// Classes by number, the root's first.
    pub fn classes(&self) -> Vec<Class> {
        let classes = self.terms.iter().map(|terms| terms.class.value);
        std::iter::once(Class::Neutral).chain(classes).collect()
    }
}
