//! The slow half of the law (mean, lead, trim, slope, floor) against a slow, plain model.
//!
//! The model keeps every quantity as a fraction of 2^-40 ucpu in 128 bits and is written from the
//! formulas, not from the header. Detectors are put to sleep by margins of the whole machine, and
//! have tests of their own below.

use proptest::prelude::*;
use tidegate_law::{Headroom, HeadroomConfig, HeadroomSample, HeadroomTerms, Reason};

/// One ucpu.
const ONE: i128 = 1 << 40;

#[derive(Default)]
struct Model {
    history_us: i128,
    main: i128,
    trail: i128,
    tail: i128,
    side: i128,
    given: i128,
    trim: i128,
    out: i128,
    calm_us: i128,
    steady_us: i128,
}

/// a + (b - a) * dt / span, the weight cut to 16 bits as the law does.
fn toward(a: i128, b: i128, dt_us: i128, span_us: i128) -> i128 {
    let weight = if dt_us >= span_us {
        65_536
    } else {
        (dt_us * 65_536 / span_us).max(1)
    };
    a + (b - a) * weight / 65_536
}

impl Model {
    fn step(&mut self, cfg: &HeadroomConfig, asked: i128, floor: i128, s: &HeadroomSample) -> i128 {
        let (dt_ns, dt_us) = (i128::from(s.dt_ns), i128::from(s.dt_ns / 1_000));
        let rate = |ns: u64| i128::from(ns) * 1_000_000 * ONE / dt_ns;
        let cap = rate(s.capacity_ns);
        let age = self.history_us + dt_us;
        let span = age.min(i128::from(cfg.mean_min_us));
        self.main = toward(self.main, rate(s.busy_ns - s.side_ns), dt_us, span);
        self.trail = toward(self.trail, self.main, dt_us, span);
        self.tail = toward(self.tail, self.trail, dt_us, span);
        self.side = toward(self.side, rate(s.side_ns), dt_us, age.min(1_000_000));
        self.given = toward(self.given, self.out, dt_us, age.min(1_000_000));
        self.history_us = age;
        let lag = self.main - self.trail;
        let climb = self.trail - self.tail;
        self.steady_us = if climb.abs() > cap / 200 {
            0
        } else {
            self.steady_us + dt_us
        };
        if self.calm_us >= i128::from(cfg.calm_us) {
            let trim_us = i128::from(cfg.trim_us);
            // The formula is the last allowance less the trim in it.
            let short = self.out - self.trim - rate(s.side_ns);
            let next = toward(self.trim, self.trim + short, dt_us, trim_us);
            let hungry = self.side + self.given / 8 + cap / 100 >= self.given;
            let barred = self.steady_us < 250_000
                || self.out <= floor
                || (!hungry && next > self.trim && next > 0);
            let most = cap * i128::from(cfg.trim_max_ppm) / 1_000_000;
            self.trim = if barred {
                toward(self.trim, 0, dt_us, trim_us)
            } else {
                next
            }
            .clamp(-most, most);
        }
        self.calm_us += dt_us;
        // Without noise the mean's span is the least one.
        let lead =
            lag.min(2 * climb).max(0) * i128::from(cfg.lead_us) / i128::from(cfg.mean_min_us);
        let led = ((self.main + lag).clamp(0, cap) + lead).min(cap);
        let want = (cap - asked - led + self.trim).clamp(floor, cap);
        let slope = cap * i128::from(cfg.raise_ppm_per_s) / 1_000_000 * dt_us / 1_000_000;
        let before = self.out.max(floor);
        if age < i128::from(cfg.warm_us) {
            self.calm_us = 0;
            self.out = floor;
        } else if want > before + slope {
            self.out = before + slope;
            if want - self.out > cap / 50 {
                self.calm_us = dt_us;
            }
        } else {
            self.out = want;
        }
        self.out
    }
}

/// No detector can fire: main never exceeds estimate + machine. No block of noise is ever full.
fn asleep() -> HeadroomConfig {
    HeadroomConfig {
        mean_max_us: HeadroomConfig::FAST.mean_min_us,
        fine_min_ppm: 1_000_000,
        fine_max_ppm: 1_000_000,
        coarse_ppm: 1_000_000,
        noise_block_us: 10_000_000,
        ..HeadroomConfig::FAST
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_slow_half_agrees_with_the_model(
        cpus in prop_oneof![Just(1u64), Just(2), Just(16), Just(256)],
        headroom_ppm in 0..900_000u32,
        steps in prop::collection::vec((0..1_000_000u64, 0..1_000_000u64, 4_000..6_000u64), 100..600),
        hold in 1..40usize,
    ) {
        let cfg = asleep();
        let terms = HeadroomTerms { headroom_ppm, tolerance_ppm: 10_000 };
        let mut law = Headroom::new(cfg.clone(), terms);
        let mut model = Model::default();
        let machine_ucpu = cpus * 1_000_000;
        let asked = i128::from(machine_ucpu) * i128::from(headroom_ppm) * ONE / 1_000_000;
        let floor = i128::from(machine_ucpu) * ONE / 100;
        // Levels that last for a while, so that means get somewhere.
        for (index, (_, _, dt_us)) in steps.iter().enumerate() {
            let (main_ppm, side_ppm, _) = steps[index / hold * hold];
            let dt_ns = dt_us * 1_000;
            let capacity_ns = cpus * dt_ns;
            let main_ns = capacity_ns / 1_000_000 * main_ppm;
            let side_ns = (capacity_ns - main_ns) / 1_000_000 * side_ppm;
            let sample = HeadroomSample {
                dt_ns, capacity_ns, busy_ns: main_ns + side_ns, side_ns, granularity_ns: 0, valid: true,
            };
            let got = law.step(&sample);
            let expected = model.step(&cfg, asked, floor, &sample);
            let off = (i128::from(got.allowance_ucpu) - expected / ONE).abs();
            // The law rounds rates to ucpu and means to ncpu; a mean of 40 windows and an integral
            // of 400 add up a few hundred such roundings.
            prop_assert!(off <= 400, "step {index}: {} against {}", got.allowance_ucpu, expected / ONE);
        }
    }
}

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
    let terms = HeadroomTerms {
        headroom_ppm: 300_000,
        tolerance_ppm: 10_000,
    };
    let mut law = Headroom::new(cfg.clone(), terms);
    let dt_ns = dt_ms * 1_000_000;
    let mut step = |main_ppm: u64| {
        let main_ns = cpus * dt_ns / 1_000_000 * main_ppm;
        law.step(&HeadroomSample {
            dt_ns,
            capacity_ns: cpus * dt_ns,
            busy_ns: main_ns,
            side_ns: 0,
            granularity_ns: 0,
            valid: true,
        })
    };
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
        assert_eq!(
            windows_to_cut(&HeadroomConfig::FAST, 5, cpus, 100_000, 800_000),
            Some(1)
        );
        assert_eq!(
            windows_to_cut(&HeadroomConfig::SLOW, 50, cpus, 100_000, 800_000),
            Some(1)
        );
    }
}
