//! The trim: what it learns from an actuator that gives less or more than it is told, its bound,
//! and when it must not learn.

use crate::support::{TERMS, window};
use tidegate_law::{Headroom, HeadroomConfig, HeadroomDecision, HeadroomTerms};

const CPUS: u64 = 4;
const MACHINE_UCPU: u64 = CPUS * 1_000_000;
const MOST_UCPU: i64 = MACHINE_UCPU as i64 / 20;

fn law(headroom_ppm: u32) -> Headroom {
    let terms = HeadroomTerms {
        headroom_ppm,
        ..TERMS
    };
    Headroom::new(HeadroomConfig::FAST, terms)
}

/// A window in which main uses `main_ppm`, and side work `side_ucpu`, or what is left.
fn step(law: &mut Headroom, main_ppm: u64, side_ucpu: u64) -> HeadroomDecision {
    let left_ucpu = MACHINE_UCPU - CPUS * main_ppm;
    law.step(&window(CPUS, 5, main_ppm, side_ucpu.min(left_ucpu)))
}

/// Side work uses `percent` of what it was given, for `windows`.
fn run(
    law: &mut Headroom,
    main_ppm: u64,
    percent: u64,
    windows: u64,
    mut check: impl FnMut(&HeadroomDecision),
) -> HeadroomDecision {
    let mut last = HeadroomDecision::default();
    for _ in 0..windows {
        last = step(law, main_ppm, last.allowance_ucpu * percent / 100);
        check(&last);
    }
    last
}

#[test]
fn it_evens_out_an_actuator_within_five_percent() {
    for (percent, sign) in [(96, 1), (105, -1)] {
        let last = run(&mut law(300_000), 200_000, percent, 6_000, |_| {});
        let side = last.allowance_ucpu * percent / 100;
        assert!(
            side.abs_diff(MACHINE_UCPU / 2) < MACHINE_UCPU / 200,
            "{side}"
        );
        assert!(last.trim_ucpu * sign > 0 && last.trim_ucpu.abs() < MOST_UCPU);
    }
    // Side work that wants nothing winds nothing up.
    let mut law = law(300_000);
    run(&mut law, 200_000, 96, 4_000, |_| {});
    let last = run(&mut law, 200_000, 0, 4_000, |_| {});
    assert!(last.trim_ucpu <= 10, "{last:?}");
}

#[test]
fn it_is_bounded_and_gives_no_more_than_there_is() {
    // Main alone would leave all: with a trim on top there is still only one machine.
    for (headroom_ppm, main_ppm, percent) in [(0, 0, 88), (300_000, 0, 88), (300_000, 0, 150)] {
        let mut most = 0;
        run(
            &mut law(headroom_ppm),
            main_ppm,
            percent,
            8_000,
            |decision| {
                most = most.max(decision.trim_ucpu.abs());
                assert!(decision.trim_ucpu.abs() <= MOST_UCPU, "{decision:?}");
                assert!(decision.allowance_ucpu <= MACHINE_UCPU, "{decision:?}");
            },
        );
        assert!(most > MOST_UCPU / 2, "{percent}: {most}");
    }
}

#[test]
fn it_stands_still_after_a_step() {
    // Side work as it was told, until main steps; then it lags 100 ms behind. That is no actuator
    // that gives too much.
    let mut law = law(300_000);
    let before = run(&mut law, 100_000, 100, 2_000, |_| {});
    let old = before.allowance_ucpu;
    let mut trims = Vec::new();
    for at in 0..80 {
        let side = if at < 20 { old } else { 0 };
        let decision = step(&mut law, 500_000, side);
        // The first windows are for noticing the step.
        if at > 4 {
            trims.push(decision.trim_ucpu);
        }
    }
    assert!(trims.iter().all(|trim| *trim == trims[0]), "{trims:?}");
}
