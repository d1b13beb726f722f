//! Why a gate runs at its present rate: the limit that holds it back (`runtime::held`), and the sum
//! behind that.

mod sum;

use tidegate_api::{ApiResult, ExplainView, GateView, Limit, StatusView, UserView};
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::cpus::online;
use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::target::Target;
use tidegate_engine::sync::lock;

use crate::errors::not_found;
use crate::gates::Gates;
use crate::kernel::Kernel;
use crate::process::Life;
use crate::runtime::Runtime;
use crate::view::figures::{count, cpus};
use crate::view::main_cpus;
use crate::view::status::write_view;
use crate::view::{Detail, status};

fn name_of(registry: &Gates, kernel: &Kernel, target: &str) -> ApiResult<String> {
    let gates = registry.lock();
    let not_found = match kernel.find(&gates, target) {
        Ok(index) => return Ok(gates[index].record.name.clone()),
        Err(not_found) => not_found,
    };
    // A process inside a gate: its gate is what limits it.
    let around = match Target::parse(target) {
        Ok(Target::Pid(pid) | Target::Thread(pid)) => kernel.gate_of(&gates, pid),
        _ => None,
    };
    around.map(|gate| gate.record.name.clone()).ok_or(not_found)
}

pub(crate) fn explain(
    registry: &Gates,
    runtime: &Runtime,
    life: &Life,
    target: &str,
) -> ApiResult<ExplainView> {
    let kernel = &runtime.kernel;
    let name = name_of(registry, kernel, target)?;
    let status = status(registry, runtime, life, Detail::Whole);
    let found = status.gates.iter().find(|gate| gate.name == name);
    let mut gate = found.cloned().ok_or_else(|| {
        not_found(format!("{target}: the gate has just ended")).with_remedy("see `tidegate status`")
    })?;
    let control = runtime.control();
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
    let summary = summary(&gate, &status, above.as_ref());
    if gate.class == "side" {
        if status.headroom_ratio > 0.0 {
            gate.notes.push(format!("idle is kept {}", status.cpuset));
        }
        gate.notes
            .extend(lock(&runtime.lock_boost).of_gate(&gate.name));
        let jobs = |jobs| {
            let jobs = count(u64::from(jobs), "job");
            format!("its jobserver lets it run {jobs} at once")
        };
        gate.notes.extend(gate.jobs.map(jobs));
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
    let sum = sum::of(&gate, &status, above.as_ref());
    Ok(ExplainView {
        summary,
        arithmetic: sum.iter().map(ToString::to_string).collect(),
        sum,
        users: users(&status),
        writes,
        gate,
        status,
    })
}

struct Above {
    group: String,
    cpus: f64,
    limit: String,
}

/// The rate of the gate, and the limit that holds it back, as a sentence.
fn summary(gate: &GateView, status: &StatusView, above: Option<&Above>) -> String {
    let (name, used, held) = (&gate.name, gate.usage_cpus, &gate.held);
    let decision = &status.decision;
    let allowance = gate.allowance_cpus.unwrap_or(decision.allowance_cpus);
    let main = format!(
        "main uses {:.2} of {:.2} CPUs and {:.0} % ({:.2} CPUs) are kept idle",
        status.main_cpus,
        status.capacity_cpus,
        100.0 * status.headroom_ratio,
        status.headroom_ratio * status.capacity_cpus
    );
    let throttled = |periods: u64| {
        let periods = count(periods, "period");
        format!("it was throttled in {periods} of the last second or two")
    };
    let own = gate.own_limit.as_ref().map_or_else(String::new, |own| {
        let burst = match own.burst_us {
            0 => String::new(),
            us => format!(", and up to {} ms saved", us as f64 / 1e3),
        };
        format!(
            "{:.2} CPUs ({} ms in each {} ms{burst})",
            own.cpus,
            own.quota_us as f64 / 1e3,
            own.period_us as f64 / 1e3
        )
    });
    let why = match held.limit {
        Limit::None if held.run_delay_seconds > 0.0 => format!(
            "no limit holds it back; its tasks waited {:.0} ms for a CPU in the last {:.1} s",
            held.run_delay_seconds * 1e3,
            held.window_seconds
        ),
        Limit::None | Limit::Demand | Limit::Frozen => held.limit.meaning().to_owned(),
        Limit::IdleClass => format!(
            "side work is in the idle class, without a quota, and gets the CPU that main leaves: main uses \
             {:.2} of {:.2} CPUs",
            status.main_cpus, status.capacity_cpus
        ),
        Limit::Headroom => format!("side work may use {allowance:.2}: {main}"),
        Limit::Tolerance => format!(
            "the tolerance of {:.2} holds it: {main}",
            decision.tolerance_cpus
        ),
        Limit::Weight => {
            let others = used.map_or_else(String::new, |used| {
                format!(" {:.2}", (status.side_cpus - used).max(0.0))
            });
            format!(
                "side work may use {allowance:.2} in all, and other side work uses{others} by its weight"
            )
        }
        Limit::Root => format!(
            "{} by the quota of all side work, which stands until the loop raises it",
            throttled(held.root_throttled_periods)
        ),
        Limit::Quota | Limit::Cap => {
            let periods = held.own_throttled_periods.max(held.root_throttled_periods);
            let term = match held.limit {
                Limit::Quota => "quota",
                _ => "cap_hard",
            };
            match own.is_empty() {
                true => format!(
                    "{}: {term} is for each process or task alone",
                    throttled(periods)
                ),
                false => format!("its {term} gives {own}, and {}", throttled(periods)),
            }
        }
        Limit::SoftCap => {
            let term = |name| gate.terms.iter().find(|term| term.name == name);
            let value = |name| term(name).map_or("", |term| term.value.as_str());
            let each = match value("cap_scope") {
                "group" => String::new(),
                scope => format!(" for each {scope}"),
            };
            format!(
                "it is above its soft cap of {}{each}, so it gets only CPU that no other task wants",
                value("cap_soft")
            )
        }
        Limit::Parent => match above {
            Some(above) => format!(
                "{} around it has {:.2} CPUs: {}",
                above.group, above.cpus, above.limit
            ),
            None => throttled(held.parent_throttled_periods),
        },
        Limit::Outside => format!(
            "another program limits its group, and {}",
            throttled(held.own_throttled_periods.max(held.root_throttled_periods))
        ),
    };
    match used {
        Some(used) => format!("{name} uses {used:.2} CPUs: {why}"),
        None => format!("{name} uses unknown CPUs: {why}"),
    }
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
        .filter_map(|gate| gate.usage_cpus)
        .sum();
    users.push(UserView {
        who: "everything else".to_owned(),
        class: "neutral".to_owned(),
        usage_cpus: Some((status.main_cpus - known).max(0.0)),
    });
    let rank = |user: &UserView| user.usage_cpus.unwrap_or(-1.0);
    users.sort_by(|a, b| rank(b).total_cmp(&rank(a)));
    users
}
