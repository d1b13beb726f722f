//! From a scenario's terms to kernel files: the values that are written once, before anything runs.
//!
//! - quota, period, burst, weight: are the kernel's own already;
//! - a hint: the slice of `sched_setattr` ([`tidegate_law::latency::slice_ns`]);
//! - a hard cap: with the group's quota the one limit of the group ([`own_limit`]), as in the
//!   agent;
//! - a soft cap: in and out of the idle class ([`tidegate_engine::control::SoftCaps`]); 0 is the
//!   idle class for good;
//! - headroom, tolerance, objective: what main's groups ask for together ([`combine`]), as in the
//!   agent.

use tidegate_engine::limit::{self, own_limit};
use tidegate_law::{cap, latency};
use tidegate_terms::{Tolerance, combine};

use crate::{Bandwidth, Class, CpuSet, DelayObjective, GroupId, GroupSpec, TaskSpec};

/// A group that carries a moving quota: where side's branch and the others' divide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    pub group: GroupId,
    pub weight: u32,
    /// The groups below it are of unequal weight.
    pub unequal: bool,
    /// Its own limit, never loosened; `u64::MAX` is none.
    pub cap_ucpu: u64,
    /// The CPUs that it may have; none is all.
    pub cpus: Option<CpuSet>,
}

/// A group that may leave the idle class only while its bucket holds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftCap {
    pub group: GroupId,
    /// Parts per thousand of one CPU.
    pub soft_ppt: u32,
}

/// What the engine is to do.
#[derive(Clone, Debug, Default)]
pub struct EngineTerms {
    /// The most idle that any main group asks for.
    pub headroom_ppm: u32,
    /// What side work gets at least.
    pub tolerance_ppm: u32,
    /// How long main may wait to run: the shortest of all counts.
    pub objective: Option<DelayObjective>,
    /// The machine's tick.
    pub tick_ns: u64,
    /// Groups that carry a moving quota.
    pub side: Vec<Side>,
    /// Groups of class main.
    pub main: Vec<GroupId>,
    /// Groups under a soft cap.
    pub soft: Vec<SoftCap>,
}

impl EngineTerms {
    /// What main's groups ask for together.
    fn combine(&mut self, groups: &[GroupSpec]) {
        let mains = || self.main.iter().map(|group| &groups[group.index() - 1]);
        let headrooms = mains().map(|spec| spec.headroom_ppm);
        let headroom_ppm = combine::headroom(headrooms, |ppm| *ppm);
        let tolerances = mains().filter_map(|spec| spec.tolerance_ppm);
        let tolerance_ppm = combine::tolerance(tolerances, |ppm| *ppm);
        let objectives = mains().filter_map(|spec| spec.objective);
        self.objective = combine::objective(objectives, |one| (one.late_after_ns, one.share_ppm));
        self.headroom_ppm = headroom_ppm.unwrap_or(0);
        self.tolerance_ppm = tolerance_ppm.unwrap_or(Tolerance::ONE_PERCENT.ppm());
    }
}

/// A group and the groups above it, below the root.
fn lineage(groups: &[GroupSpec], group: GroupId) -> impl Iterator<Item = &GroupSpec> {
    let spec_of = move |group: GroupId| group.index().checked_sub(1).and_then(|at| groups.get(at));
    std::iter::successors(spec_of(group), move |spec| spec_of(spec.parent))
}

/// The most burst that the limited groups above `group` leave it, by the agent's own rule.
pub fn burst_room_us(groups: &[GroupSpec], group: GroupId, own: Bandwidth) -> u64 {
    let above = lineage(groups, group).skip(1);
    let limits = above.filter_map(|spec| spec.bandwidth);
    let rooms_us = limits.map(|limit| limit::burst_room_us(&own, &limit));
    rooms_us.min().unwrap_or(u64::MAX)
}

/// Turns the terms of groups and tasks into values of kernel files, in place, and returns what is
/// left for the engine to do. `groups` are in the order in which they are added to the machine,
/// whose ids count from 1 (0 is the root).
pub fn compile(
    groups: &mut [GroupSpec],
    tasks: &mut [TaskSpec],
    base_slice_ns: u64,
    tick_ns: u64,
) -> EngineTerms {
    let mut compiled = EngineTerms {
        tick_ns,
        ..EngineTerms::default()
    };
    for index in 0..groups.len() {
        let group = GroupId(index as u32 + 1);
        let class = class_of(groups, group);
        compile_cap(groups, group, class, &mut compiled);
        let spec = &groups[index];
        match class {
            Class::Main => compiled.main.push(group),
            Class::Side if class_of(groups, spec.parent) != Class::Side => {
                compiled.side.push(side_root(groups, group));
            }
            Class::Side | Class::Neutral => {}
        }
    }
    compiled.combine(groups);
    for task in tasks {
        let hint = hint_of(groups, task);
        if hint != 0 && task.slice_ns.is_none() {
            task.slice_ns = Some(latency::slice_ns(hint, base_slice_ns));
        }
    }
    compiled
}

/// The class of a group: its own, or that of the nearest group above which has one.
fn class_of(groups: &[GroupSpec], group: GroupId) -> Class {
    let mut classes = lineage(groups, group).map(|spec| spec.class);
    let own = classes.find(|class| *class != Class::Neutral);
    own.unwrap_or(Class::Neutral)
}

/// The CPUs of a group: its own within those of the groups above.
fn cpus_of(groups: &[GroupSpec], group: GroupId) -> Option<CpuSet> {
    let sets = lineage(groups, group).filter_map(|spec| spec.cpus);
    sets.reduce(|own, above| {
        // As cpuset v2: an empty intersection means the parent's CPUs.
        let within = own.and(&above);
        if within.is_empty() { above } else { within }
    })
}

fn side_root(groups: &[GroupSpec], root: GroupId) -> Side {
    let spec = &groups[root.index() - 1];
    let mut weights = groups
        .iter()
        .filter(|below| below.parent == root)
        .map(|below| below.weight);
    let first = weights.next();
    Side {
        group: root,
        weight: spec.weight,
        unequal: weights.any(|weight| Some(weight) != first),
        cap_ucpu: spec.bandwidth.map_or(u64::MAX, rate_ucpu),
        cpus: cpus_of(groups, root),
    }
}

fn rate_ucpu(bandwidth: Bandwidth) -> u64 {
    bandwidth.quota_us.map_or(u64::MAX, |quota_us| {
        (u128::from(quota_us) * 1_000_000 / u128::from(bandwidth.period_us.max(1))) as u64
    })
}

fn compile_cap(groups: &mut [GroupSpec], group: GroupId, class: Class, compiled: &mut EngineTerms) {
    let spec = &mut groups[group.index() - 1];
    let Some(terms) = spec.cap.take() else {
        return;
    };
    let hard_ppt = Some(terms.hard_ppt).filter(|ppt| *ppt != 0 && *ppt != cap::NONE);
    spec.bandwidth = own_limit(spec.bandwidth, hard_ppt);
    // Side work is in the idle class anyway.
    if class == Class::Side || terms.soft_ppt >= terms.hard_ppt {
        return;
    }
    if terms.soft_ppt == 0 {
        spec.idle = true;
    } else {
        compiled.soft.push(SoftCap {
            group,
            soft_ppt: terms.soft_ppt,
        });
    }
}

/// A task's own hint, or that of the nearest group above which has one.
fn hint_of(groups: &[GroupSpec], task: &TaskSpec) -> i32 {
    let hints = lineage(groups, task.group).map(|spec| spec.latency);
    let hint = std::iter::once(task.latency)
        .chain(hints)
        .find(|hint| *hint != 0);
    hint.unwrap_or(0).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CapTerms;
    use tidegate_engine::limit::hard_cap;

    fn group(name: &str, parent: u32, class: Class) -> GroupSpec {
        GroupSpec {
            class,
            ..GroupSpec::new(name, GroupId(parent))
        }
    }

    #[test]
    fn the_topmost_side_groups_carry_the_quota() {
        let mut groups = [
            group("main", 0, Class::Main),
            group("side", 0, Class::Side),
            group("encode", 2, Class::Neutral),
            group("make", 2, Class::Side),
            group("slice", 0, Class::Neutral),
            group("batch", 5, Class::Side),
        ];
        groups[0].headroom_ppm = 300_000;
        groups[0].tolerance_ppm = Some(20_000);
        groups[2].weight = 300;
        let got = compile(&mut groups, &mut [], 3_000_000, 4_000_000);
        let roots: Vec<_> = got
            .side
            .iter()
            .map(|side| (side.group.0, side.unequal))
            .collect();
        assert_eq!(roots, [(2, true), (6, false)]);
        assert_eq!(got.main, [GroupId(1)]);
        assert_eq!((got.headroom_ppm, got.tolerance_ppm), (300_000, 20_000));
    }

    /// As in the agent: a default does not compete with a named value.
    #[test]
    fn a_main_group_that_names_no_tolerance_does_not_tighten_anothers() {
        let mut groups = [group("web", 0, Class::Main), group("db", 0, Class::Main)];
        let tolerance_ppm =
            |groups: &mut [GroupSpec]| compile(groups, &mut [], 3_000_000, 4_000_000).tolerance_ppm;
        assert_eq!(tolerance_ppm(&mut groups), 10_000);
        groups[0].tolerance_ppm = Some(50_000);
        assert_eq!(tolerance_ppm(&mut groups), 50_000);
        groups[1].tolerance_ppm = Some(20_000);
        assert_eq!(tolerance_ppm(&mut groups), 20_000);
    }

    #[test]
    fn burst_has_the_room_that_the_tightest_parent_leaves() {
        let limit = |quota_us, burst_us| Bandwidth {
            quota_us: Some(quota_us),
            period_us: 100_000,
            burst_us,
        };
        let own = limit(40_000, 0);
        let mut groups = [
            group("slice", 0, Class::Neutral),
            group("between", 1, Class::Neutral),
            group("web", 2, Class::Neutral),
        ];
        let room_us = |groups: &[GroupSpec]| burst_room_us(groups, GroupId(3), own);
        assert_eq!(room_us(&groups), u64::MAX);
        groups[0].bandwidth = Some(limit(50_000, 5_000));
        assert_eq!(room_us(&groups), 15_000);
        groups[1].bandwidth = Some(limit(30_000, 0));
        assert_eq!(room_us(&groups), 0);
    }

    #[test]
    fn caps_become_quotas_and_the_idle_class() {
        let mut groups = [group("job", 0, Class::Neutral)];
        groups[0].cap = Some(CapTerms {
            hard_ppt: 500,
            soft_ppt: 0,
        });
        let got = compile(&mut groups, &mut [], 3_000_000, 4_000_000);
        assert!(groups[0].idle && groups[0].cap.is_none() && got.soft.is_empty());
        assert_eq!(groups[0].bandwidth, Some(hard_cap(500)));
    }

    #[test]
    fn the_stricter_of_a_quota_and_a_cap_holds() {
        for (quota_us, expected_ppt) in [(80_000, 500), (20_000, 200)] {
            let mut groups = [group("job", 0, Class::Neutral)];
            groups[0].bandwidth = Some(Bandwidth::limit(quota_us, 100_000));
            groups[0].cap = Some(CapTerms {
                hard_ppt: 500,
                soft_ppt: 500,
            });
            compile(&mut groups, &mut [], 3_000_000, 4_000_000);
            let rate = groups[0].bandwidth.and_then(|limit| limit.rate_ucpu());
            assert_eq!(rate, Some(expected_ppt * 1_000), "{quota_us}");
        }
    }

    #[test]
    fn a_hint_becomes_a_slice_and_the_tasks_own_comes_first() {
        let mut groups = [group("web", 0, Class::Main)];
        groups[0].latency = -20;
        let task = |latency| TaskSpec {
            latency,
            ..TaskSpec::new(
                "t",
                GroupId(1),
                Box::new(|_: &mut crate::Ctx<'_>| crate::Op::Exit),
            )
        };
        let mut tasks = [task(0), task(-5)];
        compile(&mut groups, &mut tasks, 3_000_000, 4_000_000);
        assert_eq!(tasks[0].slice_ns, Some(latency::slice_ns(-20, 3_000_000)));
        assert_eq!(tasks[1].slice_ns, Some(latency::slice_ns(-5, 3_000_000)));
    }
}
