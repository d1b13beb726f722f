//! A gate around a process or a group that was there before.

use std::collections::{BTreeSet, HashSet};

use tidegate_api::{ApiError, ApiResult, ErrorKind};
use tidegate_cgroup::discover::CgroupVersion;
use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::target::{HeldProcess, Target};
use tidegate_terms::{Class, Config, RawTerms};

use crate::errors::{no_gate, not_found, usage};
use crate::gates::budget::{check_descriptors, check_room};
use crate::gates::{Attachment, Gate, Record, free_name};
use crate::runtime::Runtime;
use crate::runtime::attach::{agree, attach, move_to};
use crate::runtime::check::{OwnProcesses, check_feasible, check_nested};

pub(crate) struct AskedGate {
    pub target: Target,
    /// The process, held since the caller's rights were looked at.
    pub held: Option<HeldProcess>,
    pub of_unit: Option<GroupPath>,
    pub raw: RawTerms,
    pub rule: Option<String>,
    pub ruled: BTreeSet<String>,
    pub uid: u32,
    pub by_admin: BTreeSet<String>,
    pub charged_to: u32,
    /// The process alone.
    pub only: bool,
}

/// What a new gate keeps clear of: read once, for any number of them.
pub(crate) struct Obstacles {
    pub names: HashSet<String>,
    own: OwnProcesses,
}

impl Obstacles {
    pub fn by(runtime: &Runtime, gates: &[Gate]) -> Self {
        let known = gates.iter().map(|gate| gate.record.name.clone());
        Self {
            names: known.chain(runtime.unread_names()).collect(),
            own: OwnProcesses::now(&runtime.kernel, &runtime.control_loop),
        }
    }
}

pub(crate) fn make(
    runtime: &Runtime,
    config: &Config,
    gates: &[Gate],
    obstacles: &Obstacles,
    asked: AskedGate,
) -> ApiResult<Gate> {
    let kernel = &runtime.kernel;
    let (target, user) = (&asked.target, asked.charged_to);
    let (wanted, attachment) = match target {
        Target::Pid(pid) | Target::Thread(pid) => {
            let held = asked
                .held
                .as_ref()
                .ok_or_else(|| no_gate(&target.to_string()))?;
            let process = held.process.clone();
            let group = kernel.groups.group_of(*pid).map_err(not_found)?;
            let attachment = Attachment::Observed {
                pid: *pid,
                start_ticks: process.start_ticks,
                group: group.unwrap_or_else(GroupPath::root),
            };
            (process.comm, attachment)
        }
        Target::Cgroup(group) => (
            group.name().to_owned(),
            Attachment::InPlace {
                group: group.clone(),
            },
        ),
        Target::Unit(unit) => {
            let group = asked.of_unit.ok_or_else(|| no_gate(unit.as_str()))?;
            (unit.stem().to_owned(), Attachment::InPlace { group })
        }
        Target::Gate(name) => return Err(no_gate(name.as_str())),
    };
    let name = free_name(&wanted, |name| obstacles.names.contains(name))?;
    let record = Record {
        rule: asked.rule,
        ruled: asked.ruled,
        uid: asked.uid,
        charged: Some(user).filter(|user| *user != asked.uid),
        made_ns: kernel.clock.now_ns(),
        only: asked.only,
        by_admin: asked.by_admin,
        ..Record::new(
            name.to_string(),
            &target.to_string(),
            asked.raw,
            attachment.clone(),
        )
    };
    let mut gate = Gate::new(record, config).map_err(usage)?;
    if gate.is_limited() {
        obstacles
            .own
            .check_not_in(&target.to_string(), &attachment)?;
        check_apart(gates, &target.to_string(), &attachment)?;
    }
    let in_side_root =
        matches!(target, Target::Pid(_)) && kernel.groups.version() == CgroupVersion::V1;
    let moves = gate.is_limited() && !in_side_root;
    let settings = &runtime.settings;
    check_room(gates, (user, moves), &kernel.side_root(), settings)?;
    if gate.class() != Class::Neutral {
        check_descriptors(user)?;
    }
    check_feasible(runtime, &gate)?;
    check_nested(runtime, &gate, &attachment, gates)?;
    attach(runtime, &mut gate, attachment, asked.held, &obstacles.own)?;
    Ok(gate)
}

/// Refuses to make side work of the agent itself, and of groups of which one lies in the other:
/// their use would count twice.
pub(crate) fn check_limitable(
    runtime: &Runtime,
    gates: &[Gate],
    target: &str,
    attachment: &Attachment,
) -> ApiResult<()> {
    OwnProcesses::now(&runtime.kernel, &runtime.control_loop).check_not_in(target, attachment)?;
    check_apart(gates, target, attachment)
}

fn check_apart(gates: &[Gate], target: &str, attachment: &Attachment) -> ApiResult<()> {
    let Attachment::InPlace { group } = attachment else {
        return Ok(());
    };
    let overlaps = |gate: &&Gate| {
        let other = gate.record.attachment.group();
        gate.is_limited() && (group.is_within(other) || other.is_within(group))
    };
    match gates.iter().find(overlaps) {
        None => Ok(()),
        Some(gate) => Err(usage(format!(
            "{target}: it overlaps with gate {} ({}), which is side work already",
            gate.record.name,
            gate.record.attachment.group()
        ))
        .with_remedy("unset that first")),
    }
}

/// The gate has these terms from here on, or machine and gate stay as they were.
pub(crate) fn change_to(
    runtime: &Runtime,
    gates: &mut [Gate],
    index: usize,
    changed: Gate,
) -> ApiResult<()> {
    let gate = &gates[index];
    if changed.terms.tolerance.value != gate.terms.tolerance.value
        || changed.own_limit() != gate.own_limit()
        || changed.class() != gate.class()
    {
        check_feasible(runtime, &changed)?;
    }
    check_nested(runtime, &changed, &gate.record.attachment, gates)?;
    let gate = &mut gates[index];
    if changed.class() == gate.class() {
        return agree(runtime, gate, changed);
    }
    if matches!(gate.record.attachment, Attachment::Owned { .. }) {
        let detail = format!(
            "class: gate {}: the class of a running command cannot change",
            gate.record.name
        );
        return Err(ApiError::new(ErrorKind::Usage, detail)
            .with_remedy(format!("start it again with --class {}", changed.class())));
    }
    let mut again = changed;
    move_to(runtime, gate, &mut again)?;
    *gate = again;
    Ok(())
}
