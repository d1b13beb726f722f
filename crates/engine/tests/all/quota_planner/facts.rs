//! The model against figures measured on a real kernel (6.18, HZ=250, two hogs, main absent).

use super::kernel::{Kernel, STEP_NS};

/// Side's CPU in % of one CPU over 10 s, the quota rewritten every `rewrite_ms` (0: never again).
fn percent(quota_us: u64, period_us: u64, rewrite_ms: i64) -> f64 {
    let mut kernel = Kernel::new(2, 4_000_000);
    kernel.write(quota_us, period_us);
    let none = [false; 2];
    let mut next_ns = 300_000 + rewrite_ms * 1_000_000;
    while kernel.now_ns < 10_000_000_000 {
        kernel.step(&none);
        if rewrite_ms > 0 && kernel.now_ns >= next_ns {
            kernel.write(quota_us, period_us);
            // Drifts against the tick, as a timer beside it does.
            next_ns += rewrite_ms * 1_000_000 + STEP_NS;
        }
    }
    kernel.side_ns as f64 / kernel.now_ns as f64 * 100.0
}

#[test]
fn a_standing_quota_is_kept_and_a_rewritten_one_is_not() {
    let rows = [
        (2_000, 100_000, 0, 2.0, 0.3),
        (1_000, 10_000, 0, 9.9, 0.3),
        (4_000, 10_000, 0, 39.6, 0.8),
        (2_000, 100_000, 10, 50.7, 10.0),
        (1_000, 10_000, 10, 56.8, 10.0),
        (1_000, 10_000, 5, 95.5, 15.0),
        (4_000, 10_000, 10, 88.8, 10.0),
    ];
    for (quota_us, period_us, rewrite_ms, measured, within) in rows {
        let model = percent(quota_us, period_us, rewrite_ms);
        println!(
            "{quota_us}/{period_us} us, rewritten every {rewrite_ms} ms: {model:.1} % (measured {measured})"
        );
        assert!(
            (model - measured).abs() <= within,
            "{model} against {measured}"
        );
    }
}
