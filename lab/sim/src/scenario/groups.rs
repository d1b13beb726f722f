//! `[group.NAME]`: the tree of groups with their terms.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::Deserializer;
use tidegate_terms::{Objective, TimeSpan, quoted, remedy_for_unknown};
use toml::de::DeTable;

use super::document::{Findings, join};
use crate::cpuset::CpuSet;
use crate::ids::GroupId;
use crate::spec::{Bandwidth, CapTerms, Class, DelayObjective, GroupSpec};
use crate::values;

/// A group of the scenario, by its index; none is the root.
pub type GroupRef = Option<usize>;

#[derive(Clone, Debug)]
pub struct Group {
    /// Its terms. `parent` is filled in when the machine is built.
    pub spec: GroupSpec,
    pub parent: GroupRef,
    /// `burst = "max"`: its burst is the quota here, and no more than the groups above leave on the
    /// machine.
    pub burst_max: bool,
    pub headroom_said: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct GroupKeys {
    parent: String,
    class: Class,
    #[serde(deserialize_with = "weight")]
    weight: Option<Weight>,
    #[serde(deserialize_with = "values::quota")]
    quota: Option<u64>,
    #[serde(deserialize_with = "values::period")]
    period: Option<u64>,
    #[serde(deserialize_with = "burst")]
    burst: Option<Burst>,
    #[serde(deserialize_with = "values::cpu_list")]
    cpus: Option<CpuSet>,
    #[serde(deserialize_with = "values::level")]
    latency: i8,
    #[serde(deserialize_with = "values::share")]
    headroom: Option<u32>,
    #[serde(deserialize_with = "values::share")]
    tolerance: Option<u32>,
    #[serde(deserialize_with = "objective")]
    objective: Option<DelayObjective>,
    #[serde(deserialize_with = "values::ppt")]
    cap_hard: Option<u32>,
    #[serde(deserialize_with = "values::ppt")]
    cap_soft: Option<u32>,
}

#[derive(Clone, Copy)]
enum Weight {
    Idle,
    Of(u32),
}

fn weight<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Weight>, D::Error> {
    values::by(
        from,
        "a whole number from 1 to 10000, or idle",
        |text| match text.parse() {
            _ if text == "idle" => Ok(Weight::Idle),
            Ok(weight @ 1..=10_000) => Ok(Weight::Of(weight)),
            _ => Err("is no weight".into()),
        },
    )
}

#[derive(Clone, Copy, PartialEq)]
enum Burst {
    Max,
    OfUs(u64),
}

fn burst<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Burst>, D::Error> {
    values::by(
        from,
        "a time from 0s to the quota, or max",
        |text| match text {
            "max" => Ok(Burst::Max),
            _ => TimeSpan::parse(text)
                .map(|span| Burst::OfUs(span.us()))
                .map_err(|refusal| refusal.to_string()),
        },
    )
}

fn objective<'de, D: Deserializer<'de>>(from: D) -> Result<Option<DelayObjective>, D::Error> {
    let write = "a bound on how long main waits to run, as in p99<5ms";
    values::by(from, write, |text| match Objective::parse(text) {
        Ok(Objective::Delay { late_ppm, span }) => Ok(DelayObjective {
            late_after_ns: span.ns(),
            share_ppm: late_ppm,
            start_ppm: 0,
        }),
        Ok(Objective::Reported { .. }) => Err("is reported from outside".into()),
        Ok(Objective::None) => Err("is none".into()),
        Err(refusal) => Err(refusal.to_string()),
    })
}

/// The keys of each group by its name; none when one cannot be read.
pub(super) fn read(
    findings: &Findings<'_>,
    tree: &mut DeTable<'_>,
) -> Option<Vec<(String, GroupKeys)>> {
    let tables = findings.tables(tree, "group").into_iter();
    let groups: Vec<Option<(String, GroupKeys)>> = tables
        .map(|(name, table)| Some((findings.read(&join("group", &name), table)?, name)))
        .map(|group| group.map(|(keys, name)| (name, keys)))
        .collect();
    groups.into_iter().collect()
}

/// Groups below groups: as deep as anyone nests them, and little enough for the machine's walks.
const DEPTH_MAX: usize = 16;

/// The groups, each after its parent.
pub(super) fn resolve(
    keys: Vec<(String, GroupKeys)>,
    findings: &Findings<'_>,
    cpus: u32,
) -> Vec<Group> {
    let names: Vec<String> = keys.iter().map(|(name, _)| name.clone()).collect();
    let has_main = keys.iter().any(|(_, keys)| keys.class == Class::Main);
    let mut unplaced: Vec<(String, Group)> = Vec::new();
    for (name, keys) in keys {
        if !has_main {
            refuse_terms_without_main(&name, &keys, findings);
        }
        unplaced.push((keys.parent.clone(), group(&name, &keys, findings)));
    }
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut groups: Vec<Group> = Vec::new();
    // Each round places the groups whose parent has a place; the groups that remain have no way to
    // the root.
    for _ in 0..DEPTH_MAX {
        let above = places.clone();
        let ready = unplaced.extract_if(.., |(parent, _)| {
            parent.is_empty() || above.contains_key(parent)
        });
        for (parent, mut group) in ready {
            group.parent = above.get(&parent).copied();
            places.insert(group.spec.name.clone(), groups.len());
            groups.push(group);
        }
    }
    for (parent, group) in &unplaced {
        let shown = quoted(parent);
        let why = if names.contains(parent) {
            format!(
                "\"{shown}\" has no way to the root, or one of more than {DEPTH_MAX} groups; let \
                 no group be above itself"
            )
        } else {
            no_group(parent, &names)
        };
        findings.refuse(&format!("group.{}.parent", group.spec.name), why);
    }
    for group in &groups {
        if let Some(own) = &group.spec.cpus {
            let key = format!("group.{}.cpus", group.spec.name);
            refuse_no_cpus(&key, own, &groups, group.parent, findings, cpus);
        }
    }
    groups
}

/// There is no such group, and which ones there are.
pub(super) fn no_group(asked: &str, names: &[String]) -> String {
    let shown = quoted(asked);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let remedy = match names.is_empty() {
        true => format!("add [group.{shown}]"),
        false => remedy_for_unknown(asked, &names),
    };
    format!("there is no group \"{shown}\"; {remedy}")
}

/// Refuses CPUs that the machine does not have, and CPUs of which the groups above have none.
pub(super) fn refuse_no_cpus(
    key: &str,
    own: &CpuSet,
    groups: &[Group],
    above: GroupRef,
    findings: &Findings<'_>,
    cpus: u32,
) {
    if !own.is_subset(&CpuSet::first_n(cpus)) {
        let why = format!(
            "names CPUs that the machine does not have; it has 0-{}",
            cpus - 1
        );
        findings.refuse(key, why);
        return;
    }
    let lineage = std::iter::successors(above, |at| groups[*at].parent);
    let sets = lineage.filter_map(|at| groups[at].spec.cpus);
    let allowed = sets.fold(CpuSet::first_n(cpus), |allowed, own| allowed.and(&own));
    // Without a CPU above, the group above is refused.
    if !own.intersects(&allowed) && !allowed.is_empty() {
        let why = format!("the groups above may only run on {allowed}; name at least one of those");
        findings.refuse(key, why);
    }
}

/// The engines keep idle for main's groups: without one, a headroom would be read and not kept.
fn refuse_terms_without_main(name: &str, keys: &GroupKeys, findings: &Findings<'_>) {
    for (key, named) in [
        ("headroom", keys.headroom.is_some()),
        ("tolerance", keys.tolerance.is_some()),
        ("objective", keys.objective.is_some()),
    ] {
        if named {
            findings.refuse(&format!("group.{name}.{key}"), NO_MAIN);
        }
    }
}

pub(super) const NO_MAIN: &str =
    "there is no group of class main to keep it for; add class = \"main\" to main's group";

/// A name that no log and no table mistakes for anything else.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "-_".contains(c);
    (1..=40).contains(&name.chars().count()) && name.chars().all(plain)
}

fn group(name: &str, keys: &GroupKeys, findings: &Findings<'_>) -> Group {
    let path = join("group", name);
    if !is_name(name) {
        let why = "is no name for a group; use 1 to 40 letters, digits, - and _";
        findings.refuse(&path, why);
    }
    let mut spec = GroupSpec::new(name, GroupId::ROOT);
    spec.class = keys.class;
    match keys.weight {
        Some(Weight::Idle) => spec.idle = true,
        Some(Weight::Of(weight)) => spec.weight = weight,
        None => {}
    }
    spec.bandwidth = bandwidth(&path, keys, findings);
    spec.cpus = keys.cpus;
    spec.latency = keys.latency;
    spec.cap = cap(keys);
    spec.headroom_ppm = keys.headroom.unwrap_or(0);
    spec.tolerance_ppm = keys.tolerance;
    spec.objective = keys.objective;
    Group {
        spec,
        parent: None,
        burst_max: keys.quota.is_some() && keys.burst == Some(Burst::Max),
        headroom_said: keys.headroom.is_some(),
    }
}

fn bandwidth(path: &str, keys: &GroupKeys, findings: &Findings<'_>) -> Option<Bandwidth> {
    let Some(quota) = keys.quota else {
        for (key, named) in [
            ("period", keys.period.is_some()),
            ("burst", keys.burst.is_some()),
        ] {
            if named {
                let why = "means nothing without a quota; add quota = \"50ms\"";
                findings.refuse(&join(path, key), why);
            }
        }
        return None;
    };
    let quota_us = quota / 1_000;
    let burst_us = match keys.burst {
        None => 0,
        Some(Burst::Max) => quota_us,
        Some(Burst::OfUs(us)) => us,
    };
    if burst_us > quota_us {
        let why = "is above the quota; make it at most the quota";
        findings.refuse(&join(path, "burst"), why);
    }
    Some(Bandwidth {
        quota_us: Some(quota_us),
        period_us: keys
            .period
            .map_or(Bandwidth::unlimited().period_us, |ns| ns / 1_000),
        burst_us: burst_us.min(quota_us),
    })
}

fn cap(keys: &GroupKeys) -> Option<CapTerms> {
    keys.cap_hard.or(keys.cap_soft)?;
    Some(CapTerms {
        hard_ppt: keys.cap_hard.unwrap_or(tidegate_law::cap::NONE),
        soft_ppt: keys.cap_soft.unwrap_or(tidegate_law::cap::NONE),
    })
}
