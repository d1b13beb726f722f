//! Which limit is said to bind.

use tidegate_api::{CapCounts, GateCounts, LimitView};

use super::*;
use crate::view::figures::cpus;

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
fn without_headroom_nothing_but_main_is_named() {
    let why = |headroom_ratio: f64, allowance_cpus: Option<f64>| {
        let status = StatusView {
            engine: "cgroup".into(),
            headroom_ratio,
            allowance_cpus: 1.9,
            side_cpus: 0.6,
            ..StatusView::default()
        };
        let gate = GateView {
            allowance_cpus,
            ..side(0.6, 0.0)
        };
        binding(&gate, &status, &HeadroomDecision::default(), None)
    };
    // A hog that main leaves little is not told to want no more.
    let (binds, sentence) = why(0.0, None);
    assert_eq!(binds, "idle_class");
    assert!(sentence.contains("without a quota"), "{sentence}");
    assert!(!sentence.contains("wants no more"), "{sentence}");
    assert_ne!(
        why(0.0, Some(0.02)).0,
        "idle_class",
        "it starves, and has its tolerance"
    );
    assert_ne!(why(20.0, None).0, "idle_class");
}

#[test]
fn a_limit_of_its_own_binds_in_any_class() {
    let own = |by: &str, cpus: f64| {
        Some(LimitView {
            by: by.into(),
            cpus,
            quota_us: 30_000,
            period_us: 100_000,
            burst_us: 0,
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
        sched_ext: Some(GateCounts {
            cap: Some(CapCounts {
                soft_cpus: Some(0.05),
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

#[test]
fn above_its_soft_cap_is_said_only_of_what_is() {
    let said = |used: f64, soft_cpus: f64, background_cpus: f64, soft_level_us: f64| {
        let cap = CapCounts {
            soft_cpus: Some(soft_cpus),
            scope: "group".into(),
            buckets: 1,
            background_cpus,
            soft_level_us: Some(soft_level_us),
            ..CapCounts::default()
        };
        let gate = GateView {
            class: "main".into(),
            sched_ext: Some(GateCounts {
                cap: Some(cap),
                ..GateCounts::default()
            }),
            ..side(used, 0.0)
        };
        let decision = HeadroomDecision::default();
        let (binds, why) = binding(&gate, &StatusView::default(), &decision, None);
        (binds, why.contains("it is above"), why)
    };
    let (binds, above, why) = said(0.19, 0.2, 0.0, 1.5);
    assert!(binds == "cap" && !above, "{why}");
    assert!(
        why.contains("0.19 CPUs of the 0.20 that its soft cap of 0.2 CPUs"),
        "{why}"
    );
    let (binds, above, why) = said(0.19, 0.2, 0.0, -0.5);
    assert!(binds == "cap" && above, "its bucket owes: {why}");
    let (binds, above, why) = said(0.35, 0.2, 0.15, 1.5);
    assert!(binds == "cap" && above, "nobody else wanted it: {why}");
    let (binds, above, why) = said(0.1, 0.2, 0.0, 1.5);
    assert!(binds == "none" && !above, "{why}");
    let (binds, above, why) = said(0.0, 0.0, 0.0, 0.0);
    assert!(
        binds == "cap" && !above && why.contains("its soft cap is 0 CPUs, so it gets only"),
        "{why}"
    );
}
