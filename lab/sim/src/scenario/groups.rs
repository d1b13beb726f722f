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
    let mut read: Vec<(String, String, Group)> = Vec::new();
    for (name, section) in sections(table, "group", &[KEYS], findings, cpus) {
        let parent = section.text("parent").unwrap_or_default();
        let group = group(&name, &section);
        read.push((name, parent, group));
    }
    let mut order: BTreeMap<String, usize> = BTreeMap::new();
    let mut groups: Vec<Group> = Vec::new();
    // Each round takes the groups whose parent is there; what is left when a round takes none has no way to the root.
    for _ in 0..DEPTH_MAX {
        let mut left = Vec::new();
        let ready = order.clone();
        for (name, parent, mut group) in std::mem::take(&mut read) {
            if parent.is_empty() || ready.contains_key(&parent) {
                group.parent = ready.get(&parent).copied();
                order.insert(name, groups.len());
                groups.push(group);
            } else {
                left.push((name, parent, group));
            }
        }
        read = left;
    }
    let all: Vec<&str> = table
        .entries
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    for (name, parent, _) in &read {
        let Some(Node::Table(one)) = table.get(name) else {
            continue;
        };
        let section = Section::again(one, &format!("group.{name}"), findings, cpus);
        let (why, mend) = if all.contains(&parent.as_str()) {
            let why = format!(
                "\"{parent}\" has no way to the root, or one of more than {DEPTH_MAX} groups"
            );
            (why, "let no group be above itself".to_owned())
        } else {
            let shown = tidegate_terms::quoted(parent);
            (
                format!("there is no group \"{shown}\""),
                mend_for_unknown(parent, &all),
            )
        };
        section.refuse_key("parent", why, &mend);
    }
    if !groups.iter().any(|group| group.spec.class == Class::Main) {
        refuse_terms_without_main(table, findings, cpus);
    }
    refuse_no_cpus(&groups, table, findings, cpus);
    groups
}

/// The CPUs on which a group may run: those that it and every group above it name.
pub(super) fn allowed(groups: &[Group], at: GroupRef, cpus: u32) -> CpuSet {
    let mut allowed = CpuSet::first_n(cpus);
    let mut next = at;
    while let Some(group) = next.and_then(|index| groups.get(index)) {
        if let Some(own) = &group.spec.cpus {
            allowed = allowed.and(own);
        }
        next = group.parent;
    }
    allowed
}

fn refuse_no_cpus(groups: &[Group], table: &Table, findings: &Findings, cpus: u32) {
    for group in groups {
        let name = &group.spec.name;
        let above = allowed(groups, group.parent, cpus);
        // Without a CPU above, the group above is refused.
        let nowhere = |own: &CpuSet| !own.intersects(&above) && !above.is_empty();
        if let (Some(Node::Table(one)), true) = (
            table.get(name),
            group.spec.cpus.as_ref().is_some_and(nowhere),
        ) {
            let section = Section::again(one, &format!("group.{name}"), findings, cpus);
            let why = format!("the groups above may only run on {above}");
            section.refuse_key("cpus", why, "name one of those at least");
        }
    }
}

/// The engines keep idle for main's groups: without one, a headroom would be read and not kept.
fn refuse_terms_without_main(table: &Table, findings: &Findings, cpus: u32) {
    for (name, node) in &table.entries {
        let Node::Table(one) = node else { continue };
        let section = Section::again(one, &format!("group.{name}"), findings, cpus);
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

/// The tables below `[KIND]`, each as a section; values there are refused.
pub(super) fn sections<'t>(
    table: &'t Table,
    kind: &str,
    keys: &[&[&str]],
    findings: &'t Findings,
    cpus: u32,
) -> Vec<(String, Section<'t>)> {
    let mut sections = Vec::new();
    for (name, node) in &table.entries {
        let path = format!("{kind}.{name}");
        match node {
            Node::Table(below) => {
                let section = Section::new(below, &path, keys, findings, cpus);
                sections.push((name.clone(), section));
            }
            Node::Leaf(leaf) => findings.add(super::ScenarioError {
                key: path,
                place: leaf.place.clone(),
                why: format!("a value, where a {kind} is expected"),
                mend: format!("write [{kind}.NAME] and its keys below"),
            }),
        }
    }
    sections
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
