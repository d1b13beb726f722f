//! The sum behind a gate's rate: the headroom's law, the gate's own limit, and what is above it.

use tidegate_api::{GateView, Limit, StatusView, SumLineView};
use tidegate_law::Reason;

use super::Above;
use crate::view::figures::in_percent;

fn of_headroom(status: &StatusView) -> Vec<SumLineView> {
    let decision = &status.decision;
    let mut lines = vec![
        SumLineView::new(
            "capacity",
            decision.capacity_cpus,
            format!("{} online, less steal", status.cpus),
        ),
        SumLineView::new(
            "- headroom",
            -decision.headroom_cpus,
            format!(
                "{} % by {}",
                in_percent(status.headroom_ratio),
                status.headroom_from
            ),
        ),
        SumLineView::new(
            "- main and everything else",
            -decision.main_cpus,
            "estimated",
        ),
        SumLineView::new(
            "+ trim",
            decision.trim_cpus,
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
        let extra_cpus = decision.capacity_cpus * found.extra_ratio;
        let what = match found.figure.as_str() {
            "reported" => "    reported latency",
            _ => "    run delay",
        };
        lines.insert(2, SumLineView::new(what, extra_cpus, why));
    }
    lines.push(SumLineView::new(
        "= side work may use",
        decision.allowance_cpus,
        why,
    ));
    lines
}

/// What is summed for this gate: the headroom for side work, its own limit, and what is above it.
pub(super) fn of(gate: &GateView, status: &StatusView, above: Option<&Above>) -> Vec<SumLineView> {
    let mut lines = match status.decision.limit {
        Limit::IdleClass => Vec::new(),
        _ if gate.class != "side" => Vec::new(),
        _ => of_headroom(status),
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
    use tidegate_api::Decision;

    use super::*;

    #[test]
    fn the_sum_is_shown_in_the_order_of_the_formula() {
        let decision = Decision {
            capacity_cpus: 2.0,
            headroom_cpus: 0.6,
            main_cpus: 1.0,
            trim_cpus: -0.01,
            allowance_cpus: 0.39,
            reason: Reason::Track,
            ..Decision::default()
        };
        let lines = of_headroom(&StatusView {
            cpus: 2,
            decision,
            ..StatusView::default()
        });
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
