//! `[group.NAME]`: the tree of groups with their terms.

use std::collections::BTreeMap;

use tidegate_terms::{Objective, TimeSpan, mend_for_unknown};

use super::read::{Findings, Section};
use super::tree::{Node, Table};
use crate::cpuset::CpuSet;
use crate::ids::GroupId;
use crate::spec::{Bandwidth, CapTerms, Class, DelayObjective, GroupSpec};

pub(super) const KEYS: &[&str] = &[
    "parent",
    "class",
    "weight",
    "quota",
    "period",
    "burst",
    "cpus",
    "latency",
    "headroom",
    "tolerance",
    "objective",
    "cap_hard",
    "cap_soft",
];

/// A group of the scenario, by its index; none is the root.
pub type GroupRef = Option<usize>;

#[derive(Clone, Debug)]
pub struct Group {
    /// Its terms. `parent` is filled in when the machine is built.
    pub spec: GroupSpec,
    pub parent: GroupRef,
    /// `burst = "max"`: its burst is the quota here, and no more than the groups above leave on the machine.
    pub burst_max: bool,
    pub headroom_said: bool,
}

/// Groups below groups: as deep as anyone nests them, and little enough for the machine's walks.
const DEPTH_MAX: usize = 16;

pub(super) fn read(table: &Table, findings: &Findings, cpus: u32) -> Vec<Group> {
    let tables = tables(table, "group", findings);
    let sections: Vec<(&str, Section<'_>)> = tables
        .into_iter()
        .map(|(name, below)| {
            let path = format!("group.{name}");
            (name, Section::new(below, &path, &[KEYS], findings, cpus))
        })
        .collect();
    let mut unplaced: Vec<(usize, String, Group)> = Vec::new();
    for (at, (name, section)) in sections.iter().enumerate() {
        let parent = section.text("parent").unwrap_or_default();
        unplaced.push((at, parent, group(name, section)));
    }
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut groups: Vec<Group> = Vec::new();
    // Each round places the groups whose parent has a place; the groups that remain have no way to the root.
    for _ in 0..DEPTH_MAX {
        let above = places.clone();
        let is_ready = |parent: &String| parent.is_empty() || above.contains_key(parent);
        for (_, parent, mut group) in unplaced.extract_if(.., |(_, parent, _)| is_ready(parent)) {
            group.parent = above.get(&parent).copied();
            places.insert(group.spec.name.clone(), groups.len());
            groups.push(group);
        }
    }
    let names: Vec<&str> = sections.iter().map(|section| section.0).collect();
    for (at, parent, _) in &unplaced {
        let shown = tidegate_terms::quoted(parent);
        let (why, mend) = if names.contains(&parent.as_str()) {
            let why = format!(
                "\"{shown}\" has no way to the root, or one of more than {DEPTH_MAX} groups"
            );
            (why, "let no group be above itself".to_owned())
        } else {
            let why = format!("there is no group \"{shown}\"");
            (why, mend_for_unknown(parent, &names))
        };
        sections[*at].1.refuse_key("parent", why, &mend);
    }
    if !groups.iter().any(|group| group.spec.class == Class::Main) {
        refuse_terms_without_main(&sections);
    }
    refuse_no_cpus(&groups, &sections, cpus);
    groups
}

/// The CPUs on which a group may run: those that it and every group above it name.
pub(super) fn allowed(groups: &[Group], at: GroupRef, cpus: u32) -> CpuSet {
    let lineage = std::iter::successors(at, |at| groups[*at].parent);
    let sets = lineage.filter_map(|at| groups[at].spec.cpus);
    sets.fold(CpuSet::first_n(cpus), |allowed, own| allowed.and(&own))
}

fn refuse_no_cpus(groups: &[Group], sections: &[(&str, Section<'_>)], cpus: u32) {
    for group in groups {
        let above = allowed(groups, group.parent, cpus);
        // Without a CPU above, the group above is refused.
        let nowhere = |own: &CpuSet| !own.intersects(&above) && !above.is_empty();
        let section = sections.iter().find(|one| one.0 == group.spec.name);
        if let Some((_, section)) =
            section.filter(|_| group.spec.cpus.as_ref().is_some_and(nowhere))
        {
            let why = format!("the groups above may only run on {above}");
            section.refuse_key("cpus", why, "name one of those at least");
        }
    }
}

/// The engines keep idle for main's groups: without one, a headroom would be read and not kept.
fn refuse_terms_without_main(sections: &[(&str, Section<'_>)]) {
    for (_, section) in sections {
        for key in ["headroom", "tolerance", "objective"] {
            if section.has(key) {
                section.refuse_key(key, NO_MAIN.0.into(), NO_MAIN.1);
            }
        }
    }
}

pub(super) const NO_MAIN: (&str, &str) = (
    "there is no group of class main to keep it for",
    "add class = \"main\" to main's group",
);

/// The tables below `[KIND]` by name; values there are refused.
pub(super) fn tables<'t>(
    table: &'t Table,
    kind: &str,
    findings: &Findings,
) -> Vec<(&'t str, &'t Table)> {
    let mut tables = Vec::new();
    for (name, node) in &table.entries {
        match node {
            Node::Table(below) => tables.push((name.as_str(), below)),
            Node::Leaf(leaf) => findings.add(super::ScenarioError {
                key: format!("{kind}.{name}"),
                place: leaf.place.clone(),
                why: format!("a value, where a {kind} is expected"),
                mend: format!("write [{kind}.NAME] and its keys below"),
            }),
        }
    }
    tables
}

/// What stands in a path of a log or of a table without being mistaken for anything else.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "-_".contains(c);
    (1..=40).contains(&name.chars().count()) && name.chars().all(plain)
}

fn group(name: &str, section: &Section<'_>) -> Group {
    let mut spec = GroupSpec::new(name, GroupId::ROOT);
    if !is_name(name) {
        section.refuse_table(
            "is no name for a group",
            "use 1 to 40 letters, digits, - and _",
        );
    }
    let classes = [
        ("main", Class::Main),
        ("side", Class::Side),
        ("neutral", Class::Neutral),
    ];
    if let Some(class) = section.choice("class", &classes) {
        spec.class = class;
    }
    let weight = section.one(
        "weight",
        "a whole number from 1 to 10000, or idle",
        |text| match text.parse::<u32>() {
            _ if text == "idle" => Ok(None),
            Ok(weight @ 1..=10_000) => Ok(Some(weight)),
            _ => Err("is no weight".into()),
        },
    );
    match weight {
        Some(Some(weight)) => spec.weight = weight,
        Some(None) => spec.idle = true,
        None => {}
    }
    let (bandwidth, burst_max) = bandwidth(section);
    spec.bandwidth = bandwidth;
    spec.cpus = section.cpu_list("cpus");
    // From −20 to 19 by the reader.
    spec.latency = section.number("latency", -20, 19).unwrap_or(0) as i8;
    spec.cap = cap(section);
    spec.headroom_ppm = section.share("headroom").unwrap_or(spec.headroom_ppm);
    spec.tolerance_ppm = section.share("tolerance");
    spec.objective = objective(section);
    Group {
        spec,
        parent: None,
        burst_max,
        headroom_said: section.has("headroom"),
    }
}

fn objective(section: &Section<'_>) -> Option<DelayObjective> {
    let write = "a bound on how long main waits to run, as in p99<5ms";
    section.one("objective", write, |text| match Objective::parse(text) {
        Ok(Objective::Delay { late_ppm, span }) => Ok(DelayObjective {
            late_after_ns: span.ns(),
            share_ppm: late_ppm,
            start_ppm: 0,
        }),
        Ok(Objective::Reported { .. }) => Err("is reported from outside".into()),
        Ok(Objective::None) => Err("is none".into()),
        Err(refusal) => Err(refusal.0),
    })
}

fn bandwidth(section: &Section<'_>) -> (Option<Bandwidth>, bool) {
    let ms = TimeSpan::from_millis;
    let period_us = section
        .time("period", ms(1), ms(1_000))
        .map_or(Bandwidth::unlimited().period_us, |ns| ns / 1_000);
    // The kernel's own bound on quota is far above any machine of the simulator: 1024 CPUs for a second.
    let quota_us = section
        .time("quota", ms(1), ms(1_024_000))
        .map(|ns| ns / 1_000);
    let write = "a time from 0s to the quota, or max";
    let burst = section.one("burst", write, |text| match text {
        "max" => Ok(None),
        _ => TimeSpan::parse(text)
            .map(|span| Some(span.us()))
            .map_err(|refusal| refusal.0),
    });
    let Some(quota) = quota_us else {
        for key in ["period", "burst"]
            .into_iter()
            .filter(|key| section.has(key) && !section.has("quota"))
        {
            section.refuse_key(
                key,
                "means nothing without a quota".into(),
                "add quota = \"50ms\"",
            );
        }
        return (None, false);
    };
    let burst_us = burst.map_or(0, |given| given.unwrap_or(quota));
    if burst_us > quota {
        section.refuse_key(
            "burst",
            "is above the quota".into(),
            "make it at most the quota",
        );
    }
    let bandwidth = Bandwidth {
        quota_us: Some(quota),
        period_us,
        burst_us: burst_us.min(quota),
    };
    (Some(bandwidth), burst == Some(None))
}

fn cap(section: &Section<'_>) -> Option<CapTerms> {
    // Thousandths of one CPU; a group's may be above one CPU.
    let hard = section.number("cap_hard", 1, 1_024_000);
    let soft = section.number("cap_soft", 0, 1_024_000);
    hard.or(soft)?;
    // At most 1 024 000 by the reader.
    let ppt = |cap: Option<i64>| cap.map_or(tidegate_law::cap::NONE, |ppt| ppt as u32);
    Some(CapTerms {
        hard_ppt: ppt(hard),
        soft_ppt: ppt(soft),
    })
}
