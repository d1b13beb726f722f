//! Why a gate runs at its present rate: which of the limits on it binds ([`super::binding`]), and the sum behind that.

mod sum;

use tidegate_api::{ApiError, ErrorKind, ExplainView, GateView, StatusView, UserView};
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::cpus::online;
use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::target::Target;
use tidegate_engine::sync::lock;

use crate::gates::{Gates, find_in};
use crate::kernel::Kernel;
use crate::process::Life;
use crate::runtime::Runtime;
use crate::sched_ext::view::sched_ext_decision;
use crate::view::binding::{Above, binding};
use crate::view::figures::cpus;
use crate::view::main_cpus;
use crate::view::status::write_view;
use crate::view::{Detail, status};

/// The name of the gate that `target` means.
pub(crate) fn name_of(registry: &Gates, kernel: &Kernel, target: &str) -> Result<String, ApiError> {
    let gates = registry.lock();
    let not_found = match find_in(&gates, target) {
        Ok(index) => return Ok(gates[index].record.name.clone()),
        Err(not_found) => not_found,
    };
    // A process inside a gate: its gate is what limits it.
    let around = match Target::parse(target) {
        Ok(Target::Pid(pid)) => kernel.gate_of(&gates, pid),
        _ => None,
    };
    around.map(|gate| gate.record.name.clone()).ok_or(not_found)
}

/// Why the gate that `target` names runs at its present rate.
pub(crate) fn explain(
    registry: &Gates,
    runtime: &Runtime,
    life: &Life,
    target: &str,
) -> Result<ExplainView, ApiError> {
    let kernel = &runtime.kernel;
    let name = name_of(registry, kernel, target)?;
    let status = status(registry, runtime, life, Detail::Whole);
    let found = status.gates.iter().find(|gate| gate.name == name);
    let mut gate = found.cloned().ok_or_else(|| {
        ApiError::new(
            ErrorKind::NotFound,
            format!("{target}: the gate has just ended"),
        )
        .with_mend("see `tidegate status`")
    })?;
    let control = runtime.control();
    let decision = sched_ext_decision(&runtime.sched_ext).unwrap_or(*control.decision());
    let now_ns = kernel.clock.now_ns();
    let side_root = kernel.side_root().to_string();
    let writes = control
        .quotas
        .log
        .newest()
        .filter(|write| {
            write.path == gate.cgroup || write.path == side_root || gate.class != "side"
        })
        .take(8)
        .map(|write| write_view(write, now_ns))
        .collect();
    drop(control);
    let above = above(kernel, &gate);
    let (binding, summary) = binding(&gate, &status, &decision, above.as_ref());
    if gate.class == "side" {
        if status.headroom_ratio > 0.0 {
            gate.notes.push(format!("idle is kept {}", status.cpuset));
        }
        gate.notes
            .extend(lock(&runtime.lock_boost).of_gate(&gate.name));
    }
    let is_meant = |other: &&GateView, class: &str| {
        other.class == class && (gate.class != class || gate.name == other.name)
    };
    if gate.class != "neutral" {
        let online = online(&*kernel.fs).unwrap_or_default();
        let mains = status.gates.iter().filter(|one| is_meant(one, "main"));
        let sides = status.gates.iter().filter(|one| is_meant(one, "side"));
        let advice = main_cpus::advice(&kernel.groups, &online, mains, sides);
        gate.notes.extend(advice);
    }
    let sum = sum::of(&gate, &decision, &status, above.as_ref());
    Ok(ExplainView {
        summary,
        binding: binding.to_owned(),
        arithmetic: sum.iter().map(ToString::to_string).collect(),
        sum,
        users: users(&status),
        writes,
        gate,
        status,
    })
}

/// The tightest limit above the gate that is not the side root's.
fn above(kernel: &Kernel, gate: &GateView) -> Option<Above> {
    let group = GroupPath::parse(&gate.cgroup).ok()?;
    let (group, limit) = kernel.limited_above(&group, &Bandwidth::unlimited())?;
    Some(Above {
        cpus: cpus(limit.rate_ucpu()?),
        limit: limit.to_string(),
        group: group.to_string(),
    })
}

fn users(status: &StatusView) -> Vec<UserView> {
    let mut users: Vec<UserView> = status
        .gates
        .iter()
        .map(|gate| UserView {
            who: gate.name.clone(),
            class: gate.class.clone(),
            usage_cpus: gate.usage_cpus,
        })
        .collect();
    let known: f64 = status
        .gates
        .iter()
        .filter(|gate| gate.class != "side")
        .map(|gate| gate.usage_cpus)
        .sum();
    users.push(UserView {
        who: "everything else".to_owned(),
        class: "neutral".to_owned(),
        usage_cpus: (status.main_cpus - known).max(0.0),
    });
    users.sort_by(|a, b| b.usage_cpus.total_cmp(&a.usage_cpus));
    users
}
