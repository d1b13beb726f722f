//! Why a gate runs at its present rate: which of the limits on it binds, and the sum behind that.

mod sum;

use tidegate_knobs::bandwidth::Bandwidth;
use tidegate_knobs::group::GroupPath;
use tidegate_law::HeadroomDecision;
use tidegate_terms::Class;

use crate::api::{ExplainView, GateView, StatusView, UserView};
use crate::lease::monotonic_ns;
use crate::looper::lock;
use crate::owner::Owner;
use crate::server::Refusal;
use crate::views::{cpus, write_view};

/// A gate that uses this much of what it is given wants more, as far as anybody can tell.
const WANTS_MORE: f64 = 0.9;

/// Of a CPU: less is nobody's concern.
const A_THOUSANDTH: f64 = 0.001;

/// A limit that somebody else keeps on a group around the gate's.
struct Above {
    group: String,
    cpus: f64,
    limit: String,
}

impl Owner {
    /// Why the gate that `target` names runs at its present rate.
    pub fn explain(&self, target: &str) -> Result<ExplainView, Refusal> {
        let name = self.name_of(target)?;
        let status = self.status();
        let found = status.gates.iter().find(|gate| gate.name == name);
        let mut gate = found.cloned().ok_or_else(|| {
            Refusal::new(
                "not_found",
                format!("{target}: the gate has just ended; see `tidegate status`"),
            )
        })?;
        let control = lock(&self.control);
        let decision = self.ext_decision().unwrap_or(*control.decision());
        let now_ns = monotonic_ns();
        let side_root = self.side_root().to_string();
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
        let above = self.above(&gate);
        let (binding, summary) = binding(&gate, &status, &decision, above.as_ref());
        if gate.class == "side" {
            gate.notes.push(format!("idle is kept {}", status.space));
            gate.notes.extend(status.domain_notes.iter().cloned());
            gate.notes.extend(lock(&self.holders).of_gate(&gate.name));
        }
        Ok(ExplainView {
            summary,
            binding: binding.to_owned(),
            arithmetic: sum::of(&gate, &decision, &status, above.as_ref()),
            users: users(&status),
            writes,
            gate,
            status,
        })
    }

    /// The tightest limit above the gate that is not the side root's.
    fn above(&self, gate: &GateView) -> Option<Above> {
        let group = GroupPath::parse(&gate.cgroup).ok()?;
        let (group, limit) = self.limited_above(&group, &Bandwidth::unlimited())?;
        Some(Above {
            cpus: cpus(limit.rate_ucpu()?),
            limit: limit.to_string(),
            group: group.to_string(),
        })
    }
}

/// Which limit binds, and the sentence that says so.
fn binding(
    gate: &GateView,
    status: &StatusView,
    decision: &HeadroomDecision,
    above: Option<&Above>,
) -> (&'static str, String) {
    let used = gate.usage_cpus;
    let name = &gate.name;
    if let Some(above) = above_soft_cap(gate) {
        let why = format!(
            "{name} uses {used:.2} CPUs; {above}, so it gets only CPU that nobody else wants"
        );
        return ("cap", why);
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
            status.main_cpus, status.capacity_cpus, status.headroom_pct
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

/// That it is above its soft cap now, as the engine that keeps the cap has it.
fn above_soft_cap(gate: &GateView) -> Option<String> {
    if let Some(cap) = &gate.cap {
        cap.in_background_seconds?;
        return Some(format!(
            "it is above its soft cap of {}‰",
            cap.soft_permille
        ));
    }
    let cap = gate.ext.as_ref()?.cap.as_ref()?;
    let permille = cap.soft_permille?;
    let within = f64::from(permille) / 1e3 * f64::from(cap.buckets);
    // Above it by what nobody else wanted, or up to it where that was nothing.
    let is_above = cap.background_cpus > A_THOUSANDTH || gate.usage_cpus >= WANTS_MORE * within;
    let each = match cap.scope.as_str() {
        "group" => String::new(),
        each => format!(" for each {each}"),
    };
    is_above.then(|| format!("it is above its soft cap of {permille}‰{each}"))
}

/// What the headroom leaves.
fn by_headroom(name: &str, used: f64, allowance: f64, status: &StatusView) -> String {
    if !status.free_cpus.is_empty() {
        return format!(
            "{name} uses {used:.2} CPUs: side work has CPUs {}, without a quota; the rest is kept for main on its own CPUs",
            status.free_cpus
        );
    }
    format!(
        "{name} uses {used:.2} CPUs of the {allowance:.2} that side work may use: main uses {:.2} of {:.2} and {:.0} % \
         are kept idle",
        status.main_cpus, status.capacity_cpus, status.headroom_pct
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
    let burst = match own.burst_usec {
        0 => String::new(),
        us => format!(", and up to {} ms saved", us as f64 / 1e3),
    };
    let limit = format!(
        "{:.2} CPUs ({} ms in each {} ms{burst}) by its {}",
        own.cpus,
        own.quota_usec as f64 / 1e3,
        own.period_usec as f64 / 1e3,
        own.by
    );
    if used > WANTS_MORE * own.cpus {
        return Some((binds, format!("{name} uses {used:.2} of {limit}")));
    }
    (gate.throttled_lately > 0).then(|| {
        let why = format!(
            "{name} uses {used:.2} CPUs on average, but comes in bursts: it was just throttled, {} times in the last look, at \
             {limit}; burst = auto lets it save what it does not use",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{CapCounts, GateCounts, LimitView};

    fn side(usage_cpus: f64, allowance_cpus: f64) -> GateView {
        GateView {
            name: "encode".into(),
            class: "side".into(),
            usage_cpus,
            allowance_cpus: Some(allowance_cpus),
            ..GateView::default()
        }
    }

    fn of(gate: &GateView, side_cpus: f64, allowance_ucpu: u64, floor_ucpu: u64) -> &'static str {
        let status = StatusView {
            side_cpus,
            allowance_cpus: cpus(allowance_ucpu),
            ..StatusView::default()
        };
        let decision = HeadroomDecision {
            allowance_ucpu,
            floor_ucpu,
            ..HeadroomDecision::default()
        };
        binding(gate, &status, &decision, None).0
    }

    #[test]
    fn names_the_limit_that_binds() {
        assert_eq!(of(&side(0.2, 1.0), 0.2, 1_000_000, 20_000), "demand");
        assert_eq!(of(&side(1.0, 1.0), 1.0, 1_000_000, 20_000), "headroom");
        assert_eq!(of(&side(0.02, 0.02), 0.02, 20_000, 20_000), "tolerance");
        assert_eq!(
            of(&side(0.001, 0.02), 0.001, 20_000, 20_000),
            "tolerance",
            "also when main leaves it less"
        );
        assert_eq!(of(&side(0.5, 1.0), 1.0, 1_000_000, 20_000), "share");
        let main = GateView {
            class: "main".into(),
            ..side(1.0, 1.0)
        };
        assert_eq!(of(&main, 0.0, 0, 0), "none");
    }

    #[test]
    fn a_limit_of_its_own_binds_in_any_class() {
        let own = |by: &str, cpus: f64| {
            Some(LimitView {
                by: by.into(),
                cpus,
                quota_usec: 30_000,
                period_usec: 100_000,
                burst_usec: 0,
            })
        };
        let capped = |gate: GateView, by: &str| GateView {
            own_limit: own(by, 0.3),
            ..gate
        };
        let main = |used: f64| GateView {
            class: "main".into(),
            ..side(used, 0.0)
        };
        assert_eq!(of(&capped(main(0.3), "quota"), 0.0, 0, 0), "quota");
        assert_eq!(of(&capped(main(0.3), "cap_hard"), 0.0, 0, 0), "cap_hard");
        assert_eq!(of(&capped(main(0.1), "quota"), 0.0, 0, 0), "demand");
        let bursty = GateView {
            throttled_lately: 3,
            ..capped(main(0.1), "quota")
        };
        assert_eq!(of(&bursty, 0.0, 0, 0), "quota");
        let each = GateView {
            throttled_lately: 3,
            ..main(0.4)
        };
        assert_eq!(of(&each, 0.0, 0, 0), "cap_hard", "for each alone");
        let encode = capped(side(0.3, 1.0), "quota");
        assert_eq!(of(&encode, 0.3, 1_000_000, 20_000), "quota");
        assert_eq!(
            of(&capped(side(0.2, 0.2), "quota"), 0.2, 200_000, 20_000),
            "headroom",
            "the allowance is the lower one"
        );
        let each = |used: f64, background_cpus: f64| GateView {
            ext: Some(GateCounts {
                cap: Some(CapCounts {
                    soft_permille: Some(50),
                    scope: "task".into(),
                    buckets: 4,
                    background_cpus,
                    ..CapCounts::default()
                }),
                ..GateCounts::default()
            }),
            ..main(used)
        };
        let full = "the others leave nothing above it";
        assert_eq!(of(&each(0.2, 0.0), 0.0, 0, 0), "cap", "{full}");
        assert_eq!(of(&each(0.1, 0.05), 0.0, 0, 0), "cap", "one of them");
        assert_eq!(of(&each(0.1, 0.0), 0.0, 0, 0), "none");
        let above = Above {
            group: "/x".into(),
            cpus: 0.2,
            limit: "20000 us per 100000 us".into(),
        };
        let status = StatusView::default();
        let decision = HeadroomDecision::default();
        let (binds, why) = binding(&main(0.2), &status, &decision, Some(&above));
        assert!(binds == "parent" && why.contains("/x"), "{why}");
    }
}
