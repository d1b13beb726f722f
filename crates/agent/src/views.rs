//! What the owner shows: status, gates, and why a gate runs at its present rate.

use tidegate_knobs::control::{Control, Given, Write};
use tidegate_knobs::group::CpuStat;
use tidegate_law::{HeadroomDecision, Reason};
use tidegate_terms::{Class, View};

use crate::api::{
    ExplainView, GateView, LoopView, ObjectiveView, StatusView, TermView, UserView, WriteView,
};
use crate::gate::{Gate, Place};
use crate::lease::monotonic_ns;
use crate::looper::lock;
use crate::mechanisms::latency_view;
use crate::owner::Owner;
use crate::server::Refusal;

/// A gate that uses this much of what it is given wants more, as far as anybody can tell.
const WANTS_MORE: f64 = 0.9;

fn cpus(ucpu: u64) -> f64 {
    ucpu as f64 / 1e6
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        100.0 * part / whole
    } else {
        0.0
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// The last decision as a person would say it.
pub fn sentence(decision: &HeadroomDecision) -> String {
    let allowance = cpus(decision.allowance_ucpu);
    let main = cpus(decision.main_est_ucpu);
    match decision.reason {
        Reason::Warmup => "no history yet: side work has the tolerance, then ramps up".into(),
        Reason::Ramp => format!("main left more; giving back slowly, {allowance:.2} CPUs so far"),
        Reason::Track => format!("main uses {main:.2} CPUs; side work may use {allowance:.2}"),
        Reason::Cut => {
            format!("main stepped up to {main:.2} CPUs; side work cut to {allowance:.2}")
        }
        Reason::Floor => {
            format!("main uses {main:.2} CPUs and leaves nothing above the headroom: the tolerance")
        }
        Reason::Restore => {
            format!("a burst of main is over; side work may use {allowance:.2} CPUs again")
        }
        Reason::Stale => {
            "the last sample was stale or impossible: the tolerance until there is history".into()
        }
    }
}

fn write_view(write: &Write, now_ns: u64) -> WriteView {
    WriteView {
        ago_seconds: now_ns.saturating_sub(write.at_ns) as f64 / 1e9,
        path: write.path.clone(),
        value: write.value.clone(),
        was: write.was.clone(),
        reason: write.reason.clone(),
    }
}

impl Owner {
    /// The machine at a glance.
    pub fn status(&self) -> StatusView {
        let now_ns = monotonic_ns();
        // The loop waits for this lock: what is wanted of its state is copied, files are read afterwards.
        let mut view = StatusView::default();
        let given = {
            let control = lock(&self.control);
            self.show_control(&mut view, &control, now_ns);
            control.quotas.given()
        };
        let mut gates = lock(&self.gates);
        for gate in gates.iter_mut() {
            self.measure_for_show(gate, now_ns);
        }
        let limited = gates.iter().any(Gate::is_limited);
        if !limited {
            view.decision = "no side work: nothing is limited".into();
            view.reclaim_pct = None;
        }
        let side_root = self.side_root();
        let standing = given
            .iter()
            .find(|one| one.group == side_root)
            .and_then(|one| one.standing);
        view.side_quota_us = standing.and_then(|bandwidth| bandwidth.quota_us);
        view.side_period_us = standing.map(|bandwidth| bandwidth.period_us);
        view.gates = gates
            .iter()
            .map(|gate| self.gate_view(gate, &given, now_ns))
            .collect();
        drop(gates);
        view.version = env!("CARGO_PKG_VERSION").to_owned();
        view.pid = std::process::id() as i32;
        view.mode = self.mode.as_str().to_owned();
        view.engine = "knobs".to_owned();
        view.sensing_note = (view.sensing != "bpf").then(|| self.sensing_note.clone());
        view.uptime_seconds = now_ns.saturating_sub(self.started_ns) as f64 / 1e9;
        view.control.period_ms = self.period_ns as f64 / 1e6;
        view.control.owner_cpu_pct = *lock(&self.own_cpu_pct);
        view.guardian_pid =
            Some(self.lease.guardian_pid()).filter(|pid| crate::house::is_alive(*pid));
        view.lease_seconds = self.lease.age_and_lease_ns(now_ns).1 as f64 / 1e9;
        view.alerts.extend(lock(&self.alerts).iter().cloned());
        view
    }

    /// What the loop's state tells.
    fn show_control(&self, view: &mut StatusView, control: &Control, now_ns: u64) {
        let second = control.meter.second();
        let minute = control.meter.minute();
        let capacity = second.cpus(second.capacity_ns);
        let demand = control.demand();
        let late = control.late.all();
        view.sensing = control.sensing().to_owned();
        view.cpus = control.online_cpus();
        view.capacity_cpus = capacity;
        view.steal_pct = percent(
            second.cpus(second.steal_ns),
            f64::from(control.online_cpus()),
        );
        view.headroom_pct = f64::from(control.headroom_ppm()) / 1e4;
        view.objective = control.protection().as_ref().map(ObjectiveView::from);
        view.tolerance_pct = f64::from(demand.tolerance_ppm) / 1e4;
        view.headroom_from = demand.headroom_from.clone();
        view.main_cpus = second.cpus(second.busy_ns.saturating_sub(second.side_ns));
        view.side_cpus = second.cpus(second.side_ns);
        view.idle_cpus = second.cpus(second.idle_ns());
        view.allowance_cpus = cpus(control.decision().allowance_ucpu);
        view.idle_kept_pct = percent(second.cpus(second.idle_ns()), capacity);
        view.reclaim_pct = (minute.offered_ns > 0)
            .then(|| percent(minute.side_ns as f64, minute.offered_ns as f64));
        view.at_tolerance_seconds = control.at_tolerance_ns as f64 / 1e9;
        view.decision = sentence(control.decision());
        view.control = LoopView {
            steps: control.steps,
            stale: control.stale,
            late_p50_us: us(late.percentile_ns(500)),
            late_p99_us: us(late.percentile_ns(990)),
            late_max_us: us(control.late_max_ns),
            step_cost_us: us(control.cost.all().mean_ns()),
            ..LoopView::default()
        };
        view.writes_total = control.quotas.log.total();
        view.quota_writes_per_second = control.quotas.log.quotas_per_second(now_ns);
        view.alerts.extend(control.trouble.clone());
        view.alerts.extend(control.quotas.trouble.clone());
    }

    fn gate_view(&self, gate: &Gate, given: &[Given], now_ns: u64) -> GateView {
        let record = &gate.record;
        let group = record.place.group();
        let limited = self.limited_group(gate);
        let stat: CpuStat = limited
            .as_ref()
            .and_then(|group| self.groups.cpu_stat(group).ok())
            .unwrap_or_default();
        let processes = match &record.place {
            Place::Known { .. } => 1,
            _ => self.processes_below(group, 4) as u64,
        };
        let allowance = limited
            .and_then(|group| given.iter().find(|one| one.group == group))
            .map(|one| cpus(one.ucpu));
        GateView {
            name: record.name.clone(),
            target: record.target.clone(),
            class: gate.class().to_string(),
            command: (!record.command.is_empty()).then(|| record.command.join(" ")),
            cgroup: group.to_string(),
            uid: record.uid,
            parent: record.parent.clone(),
            processes,
            usage_cpus: gate.usage_cpus,
            allowance_cpus: allowance,
            nr_throttled: stat.nr_throttled,
            throttled_seconds: stat.throttled_ns as f64 / 1e9,
            latency: latency_view(gate),
            cap: self.cap_view(gate, now_ns),
            terms: gate.terms.views().iter().map(term_view).collect(),
            age_seconds: now_ns.saturating_sub(record.made_ns) as f64 / 1e9,
            notes: record.notes.clone(),
        }
    }

    /// Why the gate that `target` names runs at its present rate.
    pub fn explain(&self, target: &str) -> Result<ExplainView, Refusal> {
        let name = self.name_of(target)?;
        let status = self.status();
        let found = status.gates.iter().find(|gate| gate.name == name);
        let gate = found.cloned().ok_or_else(|| {
            Refusal::new(
                "not_found",
                format!("{target}: the gate has just ended; see `tidegate status`"),
            )
        })?;
        let control = lock(&self.control);
        let decision = *control.decision();
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
        let (binding, summary) = binding(&gate, &status, &decision);
        Ok(ExplainView {
            summary,
            binding: binding.to_owned(),
            arithmetic: arithmetic(&decision, &status),
            users: users(&status),
            writes,
            gate,
            status,
        })
    }
}

fn term_view(view: &View) -> TermView {
    TermView {
        name: view.name.to_owned(),
        value: view.value.clone(),
        source: view.source.to_string(),
        overrode: view
            .overrode
            .iter()
            .map(|weaker| format!("{} ({})", weaker.value, weaker.source))
            .collect(),
    }
}

/// Which limit binds, and the sentence that says so.
fn binding(
    gate: &GateView,
    status: &StatusView,
    decision: &HeadroomDecision,
) -> (&'static str, String) {
    let used = gate.usage_cpus;
    let name = &gate.name;
    if let Some(cap) = &gate.cap
        && cap.in_background_seconds.is_some()
    {
        let why = format!(
            "{name} uses {used:.2} CPUs; it is above its soft cap of {}‰, so it gets only CPU that nobody else wants",
            cap.soft_permille
        );
        return ("cap", why);
    }
    if gate.class != Class::Side.to_string() {
        return (
            "none",
            format!(
                "{name} uses {used:.2} CPUs; nothing limits it: it is {} work",
                gate.class
            ),
        );
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
    let why = format!(
        "{name} uses {used:.2} CPUs of the {allowance:.2} that side work may use: main uses {:.2} of {:.2} and {:.0} % \
         are kept idle",
        status.main_cpus, status.capacity_cpus, status.headroom_pct
    );
    ("headroom", why)
}

/// The law's sum, line by line.
fn arithmetic(decision: &HeadroomDecision, status: &StatusView) -> Vec<String> {
    let line = |what: &str, ucpu: f64, why: String| format!("{what:<26}{ucpu:>8.2} CPUs  {why}");
    let mut lines = vec![
        line(
            "capacity",
            cpus(decision.capacity_ucpu),
            format!("{} online, less steal", status.cpus),
        ),
        line(
            "- headroom",
            -cpus(decision.asked_ucpu),
            format!("{} % by {}", status.headroom_pct, status.headroom_from),
        ),
        line(
            "- main and everything else",
            -cpus(decision.main_est_ucpu),
            "estimated".to_owned(),
        ),
        line(
            "+ trim",
            decision.trim_ucpu as f64 / 1e6,
            "learnt from the idle really kept".to_owned(),
        ),
    ];
    let why = match decision.reason {
        Reason::Floor => format!("the tolerance ({} %) is the larger", status.tolerance_pct),
        Reason::Ramp => "still rising".to_owned(),
        reason => reason.as_str().to_owned(),
    };
    if let Some(found) = &status.objective {
        let why = format!(
            "of the headroom, found for {} ({})",
            found.from, found.state
        );
        let ucpu = decision.capacity_ucpu as f64 * found.extra_pct / 1e2 / 1e6;
        lines.insert(2, line("    run delay", ucpu, why));
    }
    lines.push(line(
        "= side work may use",
        cpus(decision.allowance_ucpu),
        why,
    ));
    lines
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
        binding(gate, &status, &decision).0
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
    fn the_sum_is_shown_in_the_order_of_the_formula() {
        let decision = HeadroomDecision {
            capacity_ucpu: 2_000_000,
            asked_ucpu: 600_000,
            main_est_ucpu: 1_000_000,
            trim_ucpu: -10_000,
            allowance_ucpu: 390_000,
            reason: Reason::Track,
            ..HeadroomDecision::default()
        };
        let lines = arithmetic(
            &decision,
            &StatusView {
                cpus: 2,
                ..StatusView::default()
            },
        );
        assert_eq!(lines.len(), 5);
        assert!(
            lines[0].contains("2.00") && lines[1].contains("-0.60") && lines[4].contains("0.39")
        );
    }
}
