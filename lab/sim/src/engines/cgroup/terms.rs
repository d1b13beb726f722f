//! From terms to kernel files: the values that are written once, before anything runs, and what is
//! left for the engine's loop. Every term is resolved by the agent's own functions
//! ([`limit`], [`Demand::of`], [`Terms`]); here is where its result is written.

use std::collections::BTreeMap;

use tidegate_engine::control::Demand;
use tidegate_engine::limit::{self, caps_for_each, hard_cap};
use tidegate_law::latency;
use tidegate_terms::{Config, Terms};

use crate::{Bandwidth, Class, CpuSet, GroupId, GroupSpec};

/// A group that carries a moving quota: where side's branch and the others' divide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    pub group: GroupId,
    pub weight: u32,
    /// The groups below it are of unequal weight.
    pub unequal: bool,
    /// The limit that its own terms ask for.
    pub own: Option<Bandwidth>,
    /// The rate of the limit that it had before; `u64::MAX` is none.
    pub cap_ucpu: u64,
    /// The CPUs that it may have; none is all.
    pub cpus: Option<CpuSet>,
}

/// A group that may leave the idle class only while its bucket holds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftCap {
    /// Parts per thousand of one CPU.
    pub soft_ppt: u32,
    /// Its weight out of the idle class.
    pub weight: u32,
}

#[derive(Clone, Debug, Default)]
pub struct EngineTerms {
    pub demand: Demand,
    /// The machine's tick.
    pub tick_ns: u64,
    /// Groups that carry a moving quota.
    pub side: Vec<Side>,
    /// The topmost groups of class main.
    pub main: Vec<GroupId>,
    pub soft: BTreeMap<GroupId, SoftCap>,
}

/// A group and the groups above it, below the root.
fn lineage(groups: &[GroupSpec], group: GroupId) -> impl Iterator<Item = GroupId> {
    let above = move |group: &GroupId| Some(groups[group.index().checked_sub(1)?].parent);
    std::iter::successors(Some(group), above).filter(|group| *group != GroupId::ROOT)
}

/// The numbers of so many groups, below the root.
fn ids(count: usize) -> impl Iterator<Item = GroupId> {
    (1..=count as u32).map(GroupId)
}

/// The groups of a class whose parent is not of it.
pub fn tops(groups: &[GroupSpec], terms: &[Terms], class: Class) -> Vec<GroupId> {
    let is_of = |group: GroupId| {
        let at = group.index().checked_sub(1);
        at.is_some_and(|at| terms[at].class.value == class)
    };
    let is_top = |group: &GroupId| is_of(*group) && !is_of(groups[group.index() - 1].parent);
    ids(groups.len()).filter(is_top).collect()
}

/// The limit that a group's own terms ask for. Limits above that the loop moves leave it any burst.
fn own_limit(
    groups: &[GroupSpec],
    terms: &[Terms],
    group: GroupId,
    moved: &[GroupId],
) -> Option<Bandwidth> {
    let terms = &terms[group.index() - 1];
    let own = limit::with_burst(terms, 0)?;
    let above = lineage(groups, group).skip(1);
    let limits = above
        .filter(|above| !moved.contains(above))
        .filter_map(|above| groups[above.index() - 1].bandwidth);
    let rooms_us = limits.map(|limit| limit::burst_room_us(&own, &limit));
    limit::of_terms(terms, rooms_us.min().unwrap_or(u64::MAX))
}

/// Writes each group's own limit, but for those that the loop moves. Groups come after their
/// parents.
pub fn write_limits(groups: &mut [GroupSpec], terms: &[Terms], moved: &[GroupId]) {
    for group in ids(groups.len()).filter(|group| !moved.contains(group)) {
        if let Some(own) = own_limit(groups, terms, group, moved) {
            groups[group.index() - 1].bandwidth = Some(own);
        }
    }
}

/// Turns terms into values of the kernel files of groups, in place, and returns what is left for
/// the engine to do. `groups` are in the order in which they are added to the machine, whose ids
/// count from 1 (0 is the root).
pub fn compile(groups: &mut [GroupSpec], terms: &[Terms], tick_ns: u64) -> EngineTerms {
    let gates = groups.iter().map(|group| group.name.as_str()).zip(terms);
    let mut compiled = EngineTerms {
        demand: Demand::of(gates, &Config::default().settings()),
        main: tops(groups, terms, Class::Main),
        tick_ns,
        ..EngineTerms::default()
    };
    let moved = tops(groups, terms, Class::Side);
    write_limits(groups, terms, &moved);
    compiled.side = moved
        .iter()
        .map(|group| Side {
            own: own_limit(groups, terms, *group, &moved),
            ..side_root(groups, terms, *group)
        })
        .collect();
    for ((group, spec), terms) in ids(terms.len()).zip(&mut *groups).zip(terms) {
        if !terms.weight.is_default() {
            spec.idle = false;
            spec.weight = terms.cpu_weight();
        }
        if let Some((_, Some(hard_ppt), _)) = caps_for_each(terms) {
            spec.task_limit = Some(hard_cap(hard_ppt));
        }
        // What carries the moving quota is in the idle class whatever it uses.
        if let Some(soft_ppt) = terms.soft_for_all_ppt()
            && !moved.contains(&group)
            && !spec.idle
        {
            spec.idle = true;
            let weight = terms.cpu_weight();
            compiled.soft.insert(group, SoftCap { soft_ppt, weight });
        }
    }
    compiled
}

/// The CPUs of a group: its own within those of the groups above.
fn cpus_of(groups: &[GroupSpec], group: GroupId) -> Option<CpuSet> {
    let sets = lineage(groups, group).filter_map(|group| groups[group.index() - 1].cpus);
    sets.reduce(|own, above| {
        // As cpuset v2: an empty intersection means the parent's CPUs.
        let within = own.and(&above);
        if within.is_empty() { above } else { within }
    })
}

fn side_root(groups: &[GroupSpec], terms: &[Terms], root: GroupId) -> Side {
    let spec = &groups[root.index() - 1];
    let below = groups.iter().zip(terms);
    let mut weights = below
        .filter(|(below, _)| below.parent == root)
        .map(|(_, terms)| terms.cpu_weight());
    let first = weights.next();
    Side {
        group: root,
        weight: terms[root.index() - 1].cpu_weight(),
        unequal: weights.any(|weight| Some(weight) != first),
        own: None,
        cap_ucpu: spec
            .bandwidth
            .and_then(|limit| limit.rate_ucpu())
            .unwrap_or(u64::MAX),
        cpus: cpus_of(groups, root),
    }
}

/// The slice of tasks in a group: by their own hint, or by that of the nearest group above which
/// names one.
pub fn hinted_slice_ns(
    groups: &[GroupSpec],
    terms: &[Terms],
    (group, own): (GroupId, i8),
    base_slice_ns: u64,
) -> Option<u64> {
    let mut named = lineage(groups, group)
        .map(|group| &terms[group.index() - 1].latency)
        .filter(|latency| !latency.is_default());
    let hint = match own {
        0 => named.next().map_or(0, |latency| latency.value.hint()),
        own => own,
    };
    (hint != 0).then(|| latency::slice_ns(hint.into(), base_slice_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_terms::{RawTerms, Source};

    fn groups(all: &[(&str, u32, &[&str])]) -> (Vec<GroupSpec>, Vec<Terms>) {
        let one = |(name, parent, words): &(&str, u32, &[&str])| {
            let raw = RawTerms::from_assignments(words, &Source::Set).unwrap();
            let terms = Config::default().resolve(&[&raw]).unwrap();
            (GroupSpec::new(name, GroupId(*parent)), terms)
        };
        all.iter().map(one).unzip()
    }

    fn compiled(all: &[(&str, u32, &[&str])]) -> (Vec<GroupSpec>, EngineTerms) {
        let (mut specs, terms) = groups(all);
        let compiled = compile(&mut specs, &terms, 4_000_000);
        (specs, compiled)
    }

    #[test]
    fn the_topmost_side_groups_carry_the_quota() {
        let (_, got) = compiled(&[
            ("main", 0, &["class=main", "headroom=30%", "tolerance=2%"]),
            ("side", 0, &["class=side"]),
            ("encode", 2, &["class=side", "weight=300"]),
            ("make", 2, &["class=side"]),
            ("slice", 0, &[]),
            ("batch", 5, &["class=side", "cap_hard=0.2cpu"]),
        ]);
        let roots: Vec<_> = got
            .side
            .iter()
            .map(|side| (side.group.0, side.unequal, side.own))
            .collect();
        assert_eq!(roots, [(2, true, None), (6, false, Some(hard_cap(200)))]);
        assert_eq!(got.main, [GroupId(1)]);
        let demand = &got.demand;
        assert_eq!(
            (demand.headroom_ppm, demand.tolerance_ppm),
            (300_000, 20_000)
        );
    }

    #[test]
    fn burst_has_the_room_that_the_tightest_limit_above_leaves() {
        let burst_us = |slice: &[&str], between: &[&str]| {
            let (specs, _) = compiled(&[
                ("slice", 0, slice),
                ("between", 1, between),
                ("web", 2, &["quota=40ms", "burst=max"]),
            ]);
            specs[2].bandwidth.unwrap().burst_us
        };
        let limited = ["quota=50ms", "burst=5ms"];
        assert_eq!(burst_us(&[], &[]), 40_000);
        assert_eq!(burst_us(&limited, &[]), 15_000);
        assert_eq!(burst_us(&limited, &["cap_hard=0.3cpu"]), 0);
    }

    #[test]
    fn a_hint_becomes_a_slice_and_the_nearest_comes_first() {
        let (specs, terms) = groups(&[("web", 0, &["latency=-20"]), ("plain", 1, &["latency=0"])]);
        let slices = [(1, 0), (1, -5), (2, 0)]
            .map(|(group, own)| hinted_slice_ns(&specs, &terms, (GroupId(group), own), 3_000_000));
        let slice = |hint| Some(latency::slice_ns(hint, 3_000_000));
        assert_eq!(slices, [slice(-20), slice(-5), None]);
    }
}
