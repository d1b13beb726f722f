//! Headroom on main's own CPUs: which cpusets the main gates have, and what of their headrooms is kept where
//! ([`tidegate_knobs::domain`] decides).
//!
//! Looked at with every change of the gates and once a second, since cpusets change without a word to us. A main whose
//! threads are confined by `sched_setaffinity` alone counts as one that may run everywhere: its threads may be told otherwise at any time.

use tidegate_api::{DomainView, StatusView};
use tidegate_knobs::control::Demand;
use tidegate_knobs::cpus::{format_list, online};
use tidegate_knobs::domain::{Asked, Ground, Keeps, both, resolve};
use tidegate_knobs::group::GroupPath;
use tidegate_terms::Class;
use tracing::info;

use crate::agent::Agent;
use crate::control_thread::lock;
use crate::gate::{Gate, demand};
use crate::views::{cpus, percent};

impl Agent {
    /// What the gates ask for now, each headroom where it is to be kept.
    pub(crate) fn demand_of(&self, gates: &[Gate]) -> Demand {
        let mut demand = demand(gates.iter(), &self.settings);
        let named = gates
            .iter()
            .filter(|gate| !gate.terms.headroom.is_default());
        let asked: Vec<Asked> = named
            .map(|gate| Asked {
                cpus: (gate.class() == Class::Main)
                    .then(|| self.cpus_of(gate.record.attachment.group()))
                    .flatten(),
                headroom_ppm: gate.terms.headroom.value.ppm(),
                from: format!("gate {}", gate.record.name),
            })
            .collect();
        let mut notes = Vec::new();
        if asked.iter().any(|one| one.cpus.is_some()) {
            let resolved = resolve(&asked, &self.ground(gates));
            let whole = resolved.whole;
            demand.domains_only = whole.is_none();
            let nobody = || (0, "nobody: it is kept on main's own CPUs".to_owned());
            (demand.headroom_ppm, demand.headroom_from) = whole.unwrap_or_else(nobody);
            demand.domains = resolved.domains;
            demand.outside_cpus = resolved.outside;
            notes = resolved.notes;
        }
        lock(&self.cpuset).set_notes(notes);
        demand
    }

    /// The cpusets may have changed since the gates did.
    pub(crate) fn look_at_domains(&self) {
        let gates = lock(&self.gates);
        let demand = self.demand_of(&gates);
        drop(gates);
        let mut control = lock(&self.control);
        if control.demand().domains != demand.domains {
            for domain in &demand.domains {
                let keeps = match domain.keeps {
                    Keeps::Time => "by quota",
                    Keeps::Space => "by side work's cpuset",
                };
                let list = format_list(&domain.cpus);
                info!("headroom of {} is kept on CPUs {list} {keeps}", domain.from);
            }
        }
        control.set_demand(demand);
    }

    /// The CPUs that the group's work may use; `None` for all, or where that cannot be told.
    fn cpus_of(&self, group: &GroupPath) -> Option<Vec<u32>> {
        // What cannot be read (a group that has just gone) may run everywhere.
        self.groups.cpus_of_work(group).ok().flatten()
    }

    fn ground(&self, gates: &[Gate]) -> Ground {
        let root = self.side_root();
        let all = online(&*self.fs).unwrap_or_default();
        let mut in_place = Vec::new();
        let (mut rooted, mut any) = (false, false);
        for gate in gates {
            match self.limited_group(gate) {
                Some(group) if group == root => (rooted, any) = (true, true),
                Some(group) => {
                    any = true;
                    let cpus = self.cpus_of(&group).unwrap_or_else(|| all.clone());
                    in_place.push((group.to_string(), both(&cpus, &all)));
                }
                None => {}
            }
        }
        let parent = root.parent().unwrap_or_else(GroupPath::root);
        let allowed = self.groups.cpuset_allowed(&parent);
        // Before there is side work, it is taken to come by `run`.
        let allowed = || allowed.map_or_else(|_| all.clone(), |cpus| both(&cpus, &all));
        Ground {
            root: (rooted || !any).then(allowed),
            online: all.clone(),
            in_place,
            by_cpu: lock(&self.control).tells_by_cpu().err(),
            refused: lock(&self.cpuset).refusal(),
        }
    }

    /// The domains as they are shown.
    pub(crate) fn domain_views(&self) -> Vec<DomainView> {
        let states = lock(&self.control).domains();
        if states.is_empty() {
            return Vec::new();
        }
        let given = lock(&self.cpuset).standing_cpus();
        let view = |state: &tidegate_knobs::control::DomainState| {
            let second = &state.second;
            let capacity = second.cpus(second.capacity_ns);
            let space = state.domain.keeps == Keeps::Space;
            DomainView {
                cpus: format_list(&state.domain.cpus),
                count: state.domain.cpus.len() as u32,
                from: state.domain.from.clone(),
                by: if space { "space" } else { "time" }.to_owned(),
                headroom_pct: f64::from(state.domain.headroom_ppm) / 1e4,
                idle_kept_pct: percent(second.cpus(second.idle_ns()), capacity),
                main_cpus: second.cpus(second.busy_ns.saturating_sub(second.side_ns)),
                side_cpus: second.cpus(second.side_ns),
                asked_cpus: cpus(state.decision.asked_ucpu),
                main_estimate_cpus: cpus(state.decision.main_est_ucpu),
                allowance_cpus: if space {
                    cpus(state.room_ucpu())
                } else {
                    cpus(state.decision.allowance_ucpu)
                },
                given: space.then(|| format_list(&both(&given, &state.domain.cpus))),
            }
        };
        states.iter().map(view).collect()
    }
}

/// The sum for side work that whole CPUs keep off main's own, line by line; none where a quota does that.
pub(crate) fn arithmetic(status: &StatusView) -> Vec<String> {
    let line = |what: &str, cpus: f64, why: &str| format!("{what:<26}{cpus:>8.2} CPUs  {why}");
    let mut lines = Vec::new();
    for domain in status.domains.iter().filter(|domain| domain.by == "space") {
        let DomainView {
            cpus, count, from, ..
        } = domain;
        lines.push(line(
            "main's own",
            f64::from(*count),
            &format!("CPUs {cpus}"),
        ));
        let asked = format!("{} % by {from}", domain.headroom_pct);
        lines.push(line("- headroom", -domain.asked_cpus, &asked));
        let main = -domain.main_estimate_cpus;
        lines.push(line(
            "- main and everything else",
            main,
            "estimated, on those",
        ));
        let given = match domain.given.as_deref() {
            None | Some("") => "whole CPUs: none".to_owned(),
            Some(given) => format!("whole CPUs: {given}"),
        };
        lines.push(line("= side work may use", domain.allowance_cpus, &given));
    }
    lines
}
