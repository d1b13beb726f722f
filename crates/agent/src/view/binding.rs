//! Which limit binds a gate, and why.

#[cfg(test)]
mod tests;

use tidegate_api::{GateView, StatusView};
use tidegate_law::HeadroomDecision;
use tidegate_terms::Class;

/// A gate that uses this much of what it is given wants more, as far as can be told.
const WANTS_MORE: f64 = 0.9;

/// Of a CPU: less does not matter.
const A_THOUSANDTH: f64 = 0.001;

/// A limit of another writer on a group around the gate's.
pub(super) struct Above {
    pub(super) group: String,
    pub(super) cpus: f64,
    pub(super) limit: String,
}

/// Which limit binds, and the sentence that says so.
pub(super) fn binding(
    gate: &GateView,
    status: &StatusView,
    decision: &HeadroomDecision,
    above: Option<&Above>,
) -> (&'static str, String) {
    let used = gate.usage_cpus;
    let name = &gate.name;
    if let Some(soft) = soft_binding(gate) {
        return ("cap", format!("{name} uses {used:.2} CPUs{soft}"));
    }
    let is_side = gate.class == Class::Side.to_string();
    if let Some(answer) = own_binding(gate, is_side.then_some(status.allowance_cpus)) {
        return answer;
    }
    if let Some(above) = above.filter(|above| used > WANTS_MORE * above.cpus) {
        let why = format!(
            "{name} uses {used:.2} CPUs of the {:.2} that {} has, in which it is: {}",
            above.cpus, above.group, above.limit
        );
        return ("parent", why);
    }
    if !is_side {
        let why = match &gate.own_limit {
            Some(own) => format!(
                "{name} uses {used:.2} CPUs and wants no more: its {} gives {:.2}",
                own.by, own.cpus
            ),
            None => format!(
                "{name} uses {used:.2} CPUs; nothing limits it: it is {} work",
                gate.class
            ),
        };
        let binds = if gate.own_limit.is_some() {
            "demand"
        } else {
            "none"
        };
        return (binds, why);
    }
    if has_no_quota(gate, status) {
        let why = format!(
            "{name} uses {used:.2} CPUs: no headroom is asked for, so it is in the idle class without a quota and gets what \
             main leaves; main uses {:.2} of {:.2}",
            status.main_cpus, status.capacity_cpus
        );
        return ("idle_class", why);
    }
    let allowance = gate.allowance_cpus.unwrap_or(status.allowance_cpus);
    let others = status.side_cpus - used;
    let at_floor = decision.allowance_ucpu <= decision.floor_ucpu;
    if status.side_cpus < WANTS_MORE * allowance && !at_floor {
        let why = format!(
            "{name} uses {used:.2} CPUs and wants no more: side work may use {allowance:.2} and uses {:.2}",
            status.side_cpus
        );
        return ("demand", why);
    }
    if at_floor {
        let why = format!(
            "{name} uses {used:.2} CPUs; the tolerance binds: main uses {:.2} of {:.2} CPUs and {:.0} % are kept idle",
            status.main_cpus,
            status.capacity_cpus,
            100.0 * status.headroom_ratio
        );
        return ("tolerance", why);
    }
    if others > WANTS_MORE * used && others > 0.05 * allowance {
        let why = format!(
            "{name} uses {used:.2} CPUs, its part of the {allowance:.2} that all side work may use; \
             other side work uses {others:.2}"
        );
        return ("share", why);
    }
    ("headroom", by_headroom(name, used, allowance, status))
}

/// That it is above its soft cap now, as the engine that keeps the cap has it, or that it uses what that gives.
fn soft_binding(gate: &GateView) -> Option<String> {
    const ABOVE: &str = "so it gets only CPU that no other task wants";
    if let Some(cap) = &gate.cap {
        cap.in_background_seconds?;
        let soft_cpus = cap.soft_cpus;
        return Some(format!(
            "; it is above its soft cap of {soft_cpus} CPUs, {ABOVE}"
        ));
    }
    let cap = gate.sched_ext.as_ref()?.cap.as_ref()?;
    let soft_cpus = cap.soft_cpus?;
    if soft_cpus == 0.0 {
        return Some(format!("; its soft cap is 0 CPUs, {ABOVE}"));
    }
    let each = match cap.scope.as_str() {
        "group" => String::new(),
        each => format!(" for each {each}"),
    };
    // By what no other work wanted over the last look, or by what its bucket owes at this moment.
    let owes = cap.soft_level_us.is_some_and(|us| us < 0.0);
    if owes || cap.background_cpus > A_THOUSANDTH {
        return Some(format!(
            "; it is above its soft cap of {soft_cpus} CPUs{each}, {ABOVE}"
        ));
    }
    // Held to it where others leave nothing above it.
    let within = soft_cpus * f64::from(cap.buckets);
    (gate.usage_cpus > WANTS_MORE * within).then(|| {
        format!(
            " of the {within:.2} that its soft cap of {soft_cpus} CPUs{each} gives before others; above that it gets only CPU that \
             no other task wants"
        )
    })
}

/// The gate's side work is in the idle class alone: no headroom is asked for, and it does not starve.
pub(super) fn has_no_quota(gate: &GateView, status: &StatusView) -> bool {
    status.engine == "cgroup" && status.headroom_ratio == 0.0 && gate.allowance_cpus.is_none()
}

fn by_headroom(name: &str, used: f64, allowance: f64, status: &StatusView) -> String {
    format!(
        "{name} uses {used:.2} CPUs of the {allowance:.2} that side work may use: main uses {:.2} of {:.2} and {:.0} % \
         are kept idle",
        status.main_cpus,
        status.capacity_cpus,
        100.0 * status.headroom_ratio
    )
}

/// Its own limit, where that is what it feels. For side work the allowance (`allowance_cpus`) may be the lower one.
fn own_binding(gate: &GateView, allowance_cpus: Option<f64>) -> Option<(&'static str, String)> {
    let Some(own) = &gate.own_limit else {
        return each_binding(gate);
    };
    if allowance_cpus.is_some_and(|allowance| allowance < own.cpus) {
        return None;
    }
    let (name, used) = (&gate.name, gate.usage_cpus);
    let binds = if own.by == "cap_hard" {
        "cap_hard"
    } else {
        "quota"
    };
    let burst = match own.burst_us {
        0 => String::new(),
        us => format!(", and up to {} ms saved", us as f64 / 1e3),
    };
    let limit = format!(
        "{:.2} CPUs ({} ms in each {} ms{burst}) by its {}",
        own.cpus,
        own.quota_us as f64 / 1e3,
        own.period_us as f64 / 1e3,
        own.by
    );
    if used > WANTS_MORE * own.cpus {
        return Some((binds, format!("{name} uses {used:.2} of {limit}")));
    }
    (gate.throttled_lately > 0).then(|| {
        let why = format!(
            "{name} uses {used:.2} CPUs on average, but comes in bursts: it was just throttled, {} times in the last look, at \
             {limit}; burst = max lets it save what it does not use",
            gate.throttled_lately
        );
        (binds, why)
    })
}

/// Without a limit of its own it is only throttled by hard caps that are for each alone.
fn each_binding(gate: &GateView) -> Option<(&'static str, String)> {
    (gate.throttled_lately > 0).then(|| {
        let why = format!(
            "{} uses {:.2} CPUs: its cap_hard is for each process or task alone, and throttled them {} times in the last look",
            gate.name, gate.usage_cpus, gate.throttled_lately
        );
        ("cap_hard", why)
    })
}
