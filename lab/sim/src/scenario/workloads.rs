//! `[workload.NAME]`: the keys that every workload has.

use super::Text;
use super::groups::{self, Group, GroupRef};
use super::kinds;
use super::read::{Findings, Section};
use super::tree::Table;
use crate::cpuset::CpuSet;
use crate::ids::GroupId;
use crate::spec::Policy;
use crate::workloads::{Common, Kind};
use tidegate_terms::{TimeSpan, mend_for_unknown};

pub(super) const KEYS: &[&str] = &[
    "kind",
    "group",
    "policy",
    "nice",
    "slice",
    "latency",
    "latency_inherit",
    "cpus",
    "start",
];

#[derive(Clone, Debug)]
pub struct Workload {
    /// What its tasks have in common. The group, the warm-up and the seed are filled in when the machine is built.
    pub common: Common,
    pub group: GroupRef,
    /// Where its side tasks are (a lock holder's).
    pub side_group: GroupRef,
    pub kind: Kind,
}

pub(super) fn read(
    text: &Text,
    table: &Table,
    groups: &[Group],
    findings: &Findings,
    cpus: u32,
) -> Vec<Workload> {
    let mut workloads = Vec::new();
    for (name, below) in groups::tables(table, "workload", findings) {
        // The kind says which keys there are. With an unknown kind every kind's keys are let through: one mistake, one
        // message.
        let mut keys = vec![KEYS];
        match kinds::of_table(below) {
            Some(row) => keys.extend(row.keys),
            None => keys.extend(kinds::ROWS.iter().flat_map(|row| row.keys)),
        }
        let path = format!("workload.{name}");
        let section = Section::new(below, &path, &keys, findings, cpus);
        let Some(row) = kinds::choose(&section) else {
            continue;
        };
        let group = group_of(&section, "group", groups);
        let side_group = group_of(&section, "side_group", groups);
        let common = common(name, &section);
        let room = groups::allowed(groups, group, cpus);
        let nowhere = |own: &CpuSet| !own.intersects(&room) && !room.is_empty();
        if common.cpus.as_ref().is_some_and(nowhere) {
            let why = format!("its group may only run on {room}");
            section.refuse_key("cpus", why, "name one of those at least");
        }
        workloads.push(Workload {
            common,
            group,
            side_group,
            kind: (row.read)(&section, text),
        });
    }
    workloads
}

fn group_of(section: &Section<'_>, key: &str, groups: &[Group]) -> GroupRef {
    let asked = section.text(key)?;
    let found = groups.iter().position(|group| group.spec.name == asked);
    if found.is_none() {
        let names: Vec<&str> = groups
            .iter()
            .map(|group| group.spec.name.as_str())
            .collect();
        let why = format!("there is no group \"{}\"", tidegate_terms::quoted(&asked));
        let mend = if names.is_empty() {
            format!("add [group.{}]", tidegate_terms::quoted(&asked))
        } else {
            mend_for_unknown(&asked, &names)
        };
        section.refuse_key(key, why, &mend);
    }
    found
}

fn common(name: &str, section: &Section<'_>) -> Common {
    let mut common = Common::new(name, GroupId::ROOT);
    let write = "normal, batch, idle, or fifo:PRIORITY with a priority from 1 to 99";
    let policy = section.one("policy", write, |text| match text.split_once(':') {
        None if text == "normal" => Ok(Policy::Normal),
        None if text == "batch" => Ok(Policy::Batch),
        None if text == "idle" => Ok(Policy::Idle),
        Some(("fifo", prio)) => match prio.parse() {
            Ok(prio @ 1..=99) => Ok(Policy::Fifo { prio }),
            _ => Err("has no priority from 1 to 99".into()),
        },
        _ => Err("is no policy".into()),
    });
    common.policy = policy.unwrap_or(Policy::Normal);
    // Both from −20 to 19 by the reader.
    common.nice = section.number("nice", -20, 19).unwrap_or(0) as i8;
    common.latency = section.number("latency", -20, 19).unwrap_or(0) as i8;
    common.latency_inherit = section.truth("latency_inherit").unwrap_or(true);
    common.slice_ns = section.time(
        "slice",
        TimeSpan::from_nanos(100_000),
        TimeSpan::from_millis(100),
    );
    common.cpus = section.cpu_list("cpus");
    common.start_ns = section.any_time("start").unwrap_or(0);
    common.end_ns = section.some_time("end");
    if common
        .end_ns
        .is_some_and(|end_ns| end_ns <= common.start_ns)
    {
        let why = "is not after its start".into();
        section.refuse_key("end", why, "make it later, or start earlier");
    }
    common
}
