//! Every sequence of a few kinds of samples, true and false, from the start and from a law that has
//! learnt: the bounds hold after each, rises keep their slope, and a sample that cannot be true
//! leaves nothing behind.

use crate::support::TERMS;
use tidegate_law::{Headroom, HeadroomConfig, HeadroomDecision, HeadroomSample, Reason};

const CPUS: u64 = 2;
const DEPTH: usize = 6;
/// Main's part of the machine, and how the window is: as it should be, or not.
#[derive(Clone, Copy)]
enum Window {
    Main(u64),
    Short,
    Impossible,
    NotVouched,
}

const WINDOWS: [Window; 8] = [
    Window::Main(0),
    Window::Main(30),
    Window::Main(45),
    Window::Main(80),
    Window::Main(100),
    Window::Short,
    Window::Impossible,
    Window::NotVouched,
];

struct Walk {
    cfg: HeadroomConfig,
    dt_ns: u64,
    steps: u64,
    stale: u64,
}

impl Walk {
    /// Side work uses all that it may.
    fn sample(&self, window: Window, allowed_ucpu: u64) -> HeadroomSample {
        let (percent, dt_ns) = match window {
            Window::Main(percent) => (percent, self.dt_ns),
            Window::Short => (30, self.dt_ns / 10),
            Window::Impossible | Window::NotVouched => (30, self.dt_ns),
        };
        let capacity_ns = CPUS * dt_ns;
        let main_ns = capacity_ns * percent / 100;
        let side_ns = (allowed_ucpu * dt_ns / 1_000_000).min(capacity_ns - main_ns);
        let busy_ns = match window {
            Window::Impossible => 2 * capacity_ns,
            _ => main_ns + side_ns,
        };
        HeadroomSample {
            dt_ns,
            capacity_ns,
            busy_ns,
            side_ns,
            granularity_ns: 0,
            valid: !matches!(window, Window::NotVouched),
        }
    }

    /// `aside`: the allowance before the alarms so far, to which a refuted cut returns at once.
    fn check(
        &mut self,
        window: Window,
        before: &HeadroomDecision,
        aside: u64,
        d: &HeadroomDecision,
    ) {
        let false_sample = matches!(window, Window::Impossible | Window::NotVouched);
        assert_eq!(d.reason.is_unusable(), false_sample);
        if d.reason == Reason::Skip {
            // Not before there is history: then what stands is the tolerance, as after a start.
            assert_eq!(d.allowance_ucpu, before.allowance_ucpu);
            self.stale += 1;
        }
        assert!(d.floor_ucpu <= d.allowance_ucpu && d.allowance_ucpu <= d.capacity_ucpu);
        assert!(d.capacity_ucpu <= CPUS * 1_000_000);
        if matches!(d.reason, Reason::Stale | Reason::Floor | Reason::Warmup) {
            assert_eq!(d.allowance_ucpu, d.floor_ucpu);
            self.stale += u64::from(false_sample);
        }
        let slope = 3 * CPUS * self.dt_ns.min(100_000_000) / 1_000;
        let from = before.allowance_ucpu.max(d.floor_ucpu).max(aside);
        assert!(
            d.allowance_ucpu <= from + slope + 1,
            "{d:?} after {before:?}"
        );
        assert!(d.trim_ucpu.unsigned_abs() <= d.capacity_ucpu / 20 + 1);
    }

    fn go(&mut self, law: &Headroom, last: &HeadroomDecision, aside: u64, depth: usize) {
        for window in WINDOWS {
            let mut next = law.clone();
            let decision = next.step(&self.sample(window, last.allowance_ucpu));
            let stepped = decision.alarms != last.alarms;
            let aside = if stepped {
                aside.max(last.allowance_ucpu)
            } else {
                aside
            };
            self.check(window, last, aside, &decision);
            self.steps += 1;
            if decision.reason == Reason::Stale {
                // As after a start: one check for all that could follow.
                let mut fresh = Headroom::new(self.cfg, TERMS);
                for _ in 0..3 {
                    let good = self.sample(Window::Main(30), decision.floor_ucpu);
                    let (a, b) = (next.step(&good), fresh.step(&good));
                    assert_eq!((a.allowance_ucpu, a.reason), (b.allowance_ucpu, b.reason));
                    assert_eq!(
                        (a.main_est_ucpu, a.trim_ucpu),
                        (b.main_est_ucpu, b.trim_ucpu)
                    );
                }
            } else if depth > 1 {
                self.go(&next, &decision, aside, depth - 1);
            }
        }
    }
}

#[test]
fn every_sequence_of_a_few_samples() {
    let mut steps = 0;
    for (cfg, dt_ns) in [
        (HeadroomConfig::FAST, 5_000_000),
        (HeadroomConfig::SLOW, 50_000_000),
    ] {
        // From the start, from a quiet machine, and from one that main nearly fills.
        for learnt_from in [None, Some(20), Some(65)] {
            let mut walk = Walk {
                cfg,
                dt_ns,
                steps: 0,
                stale: 0,
            };
            let mut law = Headroom::new(cfg, TERMS);
            let mut last = HeadroomDecision::default();
            for _ in 0..learnt_from.map_or(0, |_| 2_000_000_000 / dt_ns) {
                last = law.step(
                    &walk.sample(Window::Main(learnt_from.unwrap_or(0)), last.allowance_ucpu),
                );
            }
            walk.go(&law, &last, 0, DEPTH);
            assert!(
                walk.stale > 0 && walk.steps > 10_000,
                "a walk that went nowhere"
            );
            steps += walk.steps;
        }
    }
    println!(
        "headroom: 6 walks, {steps} states (one a sequence of up to {DEPTH} of {} samples)",
        WINDOWS.len()
    );
}
