//! The work that a user names.

use tidegate_recording::{Recording, Work};
use tidegate_terms::{quoted, remedy_for_unknown};

use crate::replay::demand::{Demand, WorkDemand};

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TargetError {
    #[error("{}: no such work in the recording; {remedy}", quoted(asked))]
    None {
        asked: String,
        /// The nearest name, or all.
        remedy: String,
    },
    #[error("{}: {} works in the recording are called so; write one of {}", quoted(asked), all.len(), all.join(", "))]
    Several { asked: String, all: Vec<String> },
}

/// The unit whose group this is, if it is one.
pub fn unit_of(cgroup: &str) -> Option<&str> {
    let name = cgroup.rsplit('/').next()?;
    let name = name.strip_prefix('_').unwrap_or(name);
    let is_unit = [".service", ".scope", ".slice"]
        .iter()
        .any(|suffix| name.ends_with(suffix));
    (is_unit && tidegate_terms::policy::lies_in_slices(cgroup)).then_some(name)
}

fn is_meant(asked: &str, demand: &WorkDemand, work: Option<&Work>) -> bool {
    let is_gate = work.is_some_and(|work| work.is_gate);
    let unit = unit_of(&demand.cgroup);
    let is_unit = |name: &str| {
        let with_suffix = format!("{name}.service");
        unit.is_some_and(|unit| unit == name || unit == with_suffix)
    };
    let is_group = |path: &str| !path.is_empty() && demand.cgroup == path;
    match asked.split_once(':') {
        Some(("gate", name)) => is_gate && demand.name == name,
        Some(("unit", name)) => is_unit(name),
        Some(("cgroup", path)) => is_group(path),
        _ => demand.name == asked || is_group(asked) || is_unit(asked),
    }
}

/// The place of the work in the demand: `gate:NAME`, `unit:NAME`, `cgroup:/PATH`, or a name alone.
///
/// # Errors
/// None or several are meant.
pub fn find(recording: &Recording, demand: &Demand, asked: &str) -> Result<usize, TargetError> {
    let work_of = |at: &usize| {
        let id = demand.works[*at].id?;
        recording.works.get(&id)
    };
    let meant: Vec<usize> = (0..demand.works.len())
        .filter(|at| is_meant(asked, &demand.works[*at], work_of(at)))
        .collect();
    // A group that became a gate is both: the gate is meant.
    let is_gate = |at: &usize| work_of(at).is_some_and(|work| work.is_gate);
    let gates: Vec<usize> = meant.iter().copied().filter(is_gate).collect();
    let of_gate = |at: &usize| demand.works[*at].cgroup == demand.works[meant[0]].cgroup;
    if let [one] = gates[..]
        && meant.iter().all(of_gate)
    {
        return Ok(one);
    }
    match meant.as_slice() {
        [one] => Ok(*one),
        [] => Err(TargetError::None {
            asked: asked.to_owned(),
            remedy: remedy(recording, demand, asked),
        }),
        several => Err(TargetError::Several {
            asked: asked.to_owned(),
            all: several
                .iter()
                .map(|at| match work_of(at).is_some_and(|work| work.is_gate) {
                    true => format!("gate:{}", demand.works[*at].name),
                    false => format!("cgroup:{}", demand.works[*at].cgroup),
                })
                .collect(),
        }),
    }
}

fn remedy(recording: &Recording, demand: &Demand, asked: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    // Those that used most are most likely meant.
    let mut works: Vec<&WorkDemand> = demand.works.iter().filter(|one| one.id.is_some()).collect();
    works.sort_by(|a, b| b.used_cpus.total_cmp(&a.used_cpus));
    for work in works {
        let is_gate = work.id.and_then(|id| recording.works.get(&id));
        let unit = unit_of(&work.cgroup).filter(|_| !is_gate.is_some_and(|work| work.is_gate));
        names.push(unit.unwrap_or(&work.name));
    }
    names.truncate(20);
    let bare = asked.split_once(':').map_or(asked, |(_, name)| name);
    remedy_for_unknown(bare, &names)
}
