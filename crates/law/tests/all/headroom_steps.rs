//! How soon the law sees a step of main.

use crate::support::{TERMS, window};
use proptest::prelude::*;
use tidegate_law::{Headroom, HeadroomConfig, Reason};

/// Windows of a quiet main at `from`, then at `to`; the number of windows until the law has cut: an
/// alarm, or (small steps, which the mean and its lead may follow before they are sure) an
/// allowance within 3 % of the new one.
fn windows_to_cut(
    cfg: &HeadroomConfig,
    dt_ms: u64,
    cpus: u64,
    from_ppm: u64,
    to_ppm: u64,
) -> Option<u64> {
    let mut law = Headroom::new(*cfg, TERMS);
    let mut step = |main_ppm: u64| law.step(&window(cpus, dt_ms, main_ppm, 0));
    for _ in 0..3_000 / dt_ms {
        assert_ne!(
            step(from_ppm).reason,
            Reason::Cut,
            "a constant main is no step"
        );
    }
    let before = step(from_ppm).alarms;
    let down_ucpu = (cpus * 730_000).saturating_sub(cpus * to_ppm);
    (1..=200).find(|_| {
        let now = step(to_ppm);
        now.alarms != before || now.allowance_ucpu <= down_ucpu.max(now.floor_ucpu)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A quiet main's step of `rise` is seen as soon as rise - margin has summed up to the
    /// threshold; the margin is at least the configured one, and learning only raises it.
    #[test]
    fn a_step_is_seen_within_its_bound(
        cpus in 1..300u64, from_ppm in 0..500_000u64, rise_ppm in 100_000..500_000u64,
    ) {
        let cfg = HeadroomConfig::FAST;
        let seen = windows_to_cut(&cfg, 5, cpus, from_ppm, from_ppm + rise_ppm);
        // Threshold 2 ms a CPU, margin 3 %; a mean that follows takes a window's worth.
        let gain_us = (rise_ppm - 30_000) * 5 / 1_000;
        let bound = u64::from(cfg.fine_threshold_us) / gain_us + 3;
        prop_assert!(seen.is_some_and(|windows| windows <= bound), "{seen:?}, bound {bound}");
    }
}

#[test]
fn ten_to_eighty_is_seen_in_the_first_full_window() {
    for cpus in [1, 2, 4, 16, 64, 256] {
        for (cfg, dt_ms) in [(HeadroomConfig::FAST, 5), (HeadroomConfig::SLOW, 50)] {
            assert_eq!(windows_to_cut(&cfg, dt_ms, cpus, 100_000, 800_000), Some(1));
        }
    }
}
