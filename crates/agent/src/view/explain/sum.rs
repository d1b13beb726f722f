//! The sum behind a gate's rate: the headroom's law, the gate's own limit, and what is above it.

use tidegate_api::{GateView, StatusView, SumLineView};
use tidegate_law::{HeadroomDecision, Reason};

use crate::view::binding::{Above, has_no_quota};
use crate::view::figures::{cpus, in_percent};

/// The law's sum, line by line.
fn of_headroom(decision: &HeadroomDecision, status: &StatusView) -> Vec<SumLineView> {
    let mut lines = vec![
        SumLineView::new(
            "capacity",
            cpus(decision.capacity_ucpu),
            format!("{} online, less steal", status.cpus),
        ),
        SumLineView::new(
            "- headroom",
            -cpus(decision.asked_ucpu),
            format!(
                "{} % by {}",
                in_percent(status.headroom_ratio),
                status.headroom_from
            ),
        ),
        SumLineView::new(
            "- main and everything else",
            -cpus(decision.main_est_ucpu),
            "estimated",
        ),
        SumLineView::new(
            "+ trim",
            decision.trim_ucpu as f64 / 1e6,
            "learnt from the idle really kept",
        ),
    ];
    let why = match decision.reason {
        Reason::Floor => format!(
            "the tolerance ({} %) is the larger",
            in_percent(status.tolerance_ratio)
        ),
        Reason::Ramp => "still rising".to_owned(),
        reason => reason.as_str().to_owned(),
    };
    if let Some(found) = &status.objective {
        let why = format!(
            "of the headroom, found for {} ({})",
            found.from, found.state
        );
        let ucpu = decision.capacity_ucpu as f64 * found.extra_ratio / 1e6;
        let what = match found.figure.as_str() {
            "reported" => "    reported latency",
            _ => "    run delay",
        };
        lines.insert(2, SumLineView::new(what, ucpu, why));
    }
    lines.push(SumLineView::new(
        "= side work may use",
        cpus(decision.allowance_ucpu),
        why,
    ));
    lines
}

/// What is summed for this gate: the headroom for side work, its own limit, and what is above it.
pub(super) fn of(
    gate: &GateView,
    decision: &HeadroomDecision,
    status: &StatusView,
    above: Option<&Above>,
) -> Vec<SumLineView> {
    let mut lines = match has_no_quota(gate, status) {
        true => Vec::new(),
        false => of_headroom(decision, status),
    };
    if let Some(own) = &gate.own_limit {
        let why = format!(
            "{} us in each {} us, burst {} us",
            own.quota_us, own.period_us, own.burst_us
        );
        let what = format!("  its own {}", own.by);
        lines.push(SumLineView::new(what, own.cpus, why));
    }
    if let Some(above) = above {
        let why = format!("{}: {}", above.group, above.limit);
        lines.push(SumLineView::new("  the group around it", above.cpus, why));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let lines = of_headroom(
            &decision,
            &StatusView {
                cpus: 2,
                ..StatusView::default()
            },
        );
        assert_eq!(lines.len(), 5);
        let cpus: Vec<f64> = lines.iter().map(|line| line.cpus).collect();
        assert_eq!(cpus, [2.0, -0.6, -1.0, -0.01, 0.39]);
        let text = lines[1].to_string();
        assert!(
            text.starts_with("- headroom ") && text.contains(" -0.60 CPUs  "),
            "{text}"
        );
    }
}
