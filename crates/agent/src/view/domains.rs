//! Headroom on main's own CPUs, as it is shown.

use tidegate_api::{DomainView, StatusView, SumLineView};
use tidegate_cgroup::cpus::format_list;
use tidegate_engine::domain::{Keeps, both};
use tidegate_engine::sync::lock;

use super::figures::{cpus, percent};
use crate::runtime::Runtime;

/// The domains as they are shown.
pub(crate) fn domain_views(runtime: &Runtime) -> Vec<DomainView> {
    let states = runtime.control().domains();
    if states.is_empty() {
        return Vec::new();
    }
    let given = lock(&runtime.cpuset).standing_cpus();
    let view = |state: &tidegate_engine::control::DomainState| {
        let second = &state.second;
        let capacity = second.cpus(second.capacity_ns);
        let by_cpuset = state.domain.keeps == Keeps::Cpuset;
        DomainView {
            cpus: format_list(&state.domain.cpus),
            count: state.domain.cpus.len() as u32,
            from: state.domain.from.clone(),
            by: if by_cpuset { "cpuset" } else { "quota" }.to_owned(),
            headroom_pct: f64::from(state.domain.headroom_ppm) / 1e4,
            idle_kept_pct: percent(second.cpus(second.idle_ns()), capacity),
            main_cpus: second.cpus(second.busy_ns.saturating_sub(second.side_ns)),
            side_cpus: second.cpus(second.side_ns),
            asked_cpus: cpus(state.decision.asked_ucpu),
            main_estimate_cpus: cpus(state.decision.main_est_ucpu),
            allowance_cpus: if by_cpuset {
                cpus(state.room_ucpu())
            } else {
                cpus(state.decision.allowance_ucpu)
            },
            side_cpuset: by_cpuset.then(|| format_list(&both(&given, &state.domain.cpus))),
        }
    };
    states.iter().map(view).collect()
}

/// The sum for side work that whole CPUs keep off main's own, line by line; none where a quota does that.
pub(crate) fn arithmetic(status: &StatusView) -> Vec<SumLineView> {
    let mut lines = Vec::new();
    for domain in status.domains.iter().filter(|domain| domain.by == "cpuset") {
        let DomainView {
            cpus, count, from, ..
        } = domain;
        lines.push(SumLineView::new(
            "main's own",
            f64::from(*count),
            format!("CPUs {cpus}"),
        ));
        let asked = format!("{} % by {from}", domain.headroom_pct);
        lines.push(SumLineView::new("- headroom", -domain.asked_cpus, asked));
        let main = -domain.main_estimate_cpus;
        lines.push(SumLineView::new(
            "- main and everything else",
            main,
            "estimated, on those",
        ));
        let given = match domain.side_cpuset.as_deref() {
            None | Some("") => "whole CPUs: none".to_owned(),
            Some(given) => format!("whole CPUs: {given}"),
        };
        lines.push(SumLineView::new(
            "= side work may use",
            domain.allowance_cpus,
            given,
        ));
    }
    lines
}
