//! Adaptive burst against a slow reference model, its promises, and every state of small ones.

use crate::support::walk;
use proptest::prelude::*;
use tidegate_law::burst::{AutoBurst, Config, Evidence, NO_PARENT, room_ns};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const ALL_PPB: f64 = 1e9;

/// The same in wide numbers, written from law/burst.md.
#[derive(Clone, Copy, Debug, Default)]
struct Reference {
    burst: u128,
    age_us: u128,
    use_ppb: f64,
    calm_us: u128,
}

impl Reference {
    fn step(&mut self, cfg: &Config, e: &Evidence, valid: bool) {
        let wide = |x: u64| u128::from(x);
        let cpus = |amount: u64, time: u64| wide(amount) / 8192 <= wide(time);
        let sane = valid
            && (1_000..=10 * SECOND).contains(&e.dt_ns)
            && (1_000..=SECOND).contains(&e.period_ns)
            && e.quota_ns >= 1_000
            && cpus(e.quota_ns, e.period_ns)
            && e.capacity_ns >= 1_000
            && cpus(e.capacity_ns, e.dt_ns)
            && wide(e.idle_ns) <= wide(e.capacity_ns) + wide(e.capacity_ns) / 64 + 100_000
            && wide(e.used_ns) <= 2 * wide(e.capacity_ns) + 1;
        if !sane {
            *self = Self::default();
            return;
        }
        let dt_us = wide(e.dt_ns / 1_000);
        self.age_us = (self.age_us + dt_us).min(wide(u64::from(cfg.mean_us)));
        let span = self.age_us;
        let weight = (dt_us as f64 / span as f64).min(1.0);
        let due = wide(e.quota_ns / 1_000) * dt_us / wide(e.period_ns / 1_000);
        let share = if due == 0 {
            2.0
        } else {
            (wide(e.used_ns / 1_000) as f64 / due as f64).min(2.0)
        };
        self.use_ppb += (share * ALL_PPB - self.use_ppb) * weight;
        let idle = wide(e.idle_ns.min(e.capacity_ns) / 1_000);
        let short = idle * 1_000_000 < wide(e.capacity_ns / 1_000) * wide(u64::from(cfg.short_ppm));
        let part = |ppm_per_s: u32| {
            let ppm = (u128::from(ppm_per_s) * dt_us / 1_000_000).min(1_000_000);
            wide(e.quota_ns) * ppm / 1_000_000
        };
        let calm = self.calm_us >= wide(u64::from(cfg.calm_us));
        self.calm_us = if short { 0 } else { self.calm_us + dt_us };
        if short {
            self.burst = self.burst.saturating_sub(part(cfg.shrink_ppm_per_s).max(1));
        } else if calm && e.throttled > 0 && self.use_ppb < ALL_PPB {
            self.burst = wide(e.quota_ns);
        }
        self.burst = self.burst.min(wide(e.quota_ns)).min(wide(e.room_ns));
    }
}

fn evidence() -> impl Strategy<Value = (Evidence, bool)> {
    let dt = prop_oneof![8 => 100 * MS..2 * SECOND, 1 => 0..20 * SECOND];
    let period = prop_oneof![8 => 10 * MS..=SECOND, 1 => 0..2 * SECOND];
    let room = prop_oneof![Just(NO_PARENT), 0..500 * MS];
    let valid = prop::bool::weighted(0.97);
    (
        dt,
        period,
        1..4_000u64,
        1..64u64,
        0..1_300u64,
        0..1_030u64,
        room,
        0..3u32,
        valid,
    )
        .prop_map(
            |(dt_ns, period_ns, quota_permille, cpus, used, idle, room_ns, throttled, valid)| {
                let quota_ns = period_ns * quota_permille / 1000;
                let capacity_ns = cpus * dt_ns;
                let due = u128::from(quota_ns) * u128::from(dt_ns) / u128::from(period_ns.max(1));
                let evidence = Evidence {
                    dt_ns,
                    quota_ns,
                    period_ns,
                    used_ns: (due * u128::from(used) / 1000) as u64,
                    room_ns,
                    capacity_ns,
                    idle_ns: capacity_ns * idle / 1000,
                    throttled,
                    ..Evidence::default()
                };
                (evidence.vouched(valid), valid)
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn agrees_with_the_reference(
        calm in 0..4_000_000u32, shrink in 0..4_000_000u32, short in 0..200_000u32, mean in 1_000..20_000_000u32,
        windows in prop::collection::vec(evidence(), 1..60),
    ) {
        let cfg = Config { calm_us: calm, shrink_ppm_per_s: shrink, short_ppm: short, mean_us: mean };
        let (mut ours, mut reference) = (AutoBurst::new(cfg), Reference::default());
        for (evidence, valid) in windows {
            let before = (ours, reference);
            let burst = ours.step(&evidence);
            reference.step(&cfg, &evidence, valid);
            // The mean in floating point is off by roundings; where it lies on the edge either answer is right.
            let off = (ours.use_ppb() as f64 - reference.use_ppb).abs();
            prop_assert!(off <= 3e5, "{} against {}", ours.use_ppb(), reference.use_ppb);
            if (reference.use_ppb - ALL_PPB).abs() <= 3e5 {
                reference.burst = u128::from(burst);
            }
            prop_assert_eq!(u128::from(burst), reference.burst, "{:?} {:?}", before, evidence);
            prop_assert!(burst <= evidence.quota_ns && burst <= evidence.room_ns);
        }
    }

    #[test]
    fn any_evidence_is_survived(
        cfg in (any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>()),
        words in prop::collection::vec(prop::array::uniform8(any::<u64>()), 1..30),
    ) {
        let mut burst = AutoBurst::new(Config {
            calm_us: cfg.0, shrink_ppm_per_s: cfg.1, short_ppm: cfg.2, mean_us: cfg.3,
        });
        for w in words {
            let cut = |x: u64, bits: u64| x >> (x % bits);
            let evidence = Evidence {
                dt_ns: cut(w[0], 64), quota_ns: cut(w[1], 64), period_ns: cut(w[2], 64), used_ns: cut(w[3], 64),
                room_ns: w[4], capacity_ns: cut(w[5], 64), idle_ns: cut(w[6], 64), throttled: w[7] as u32,
                ..Evidence::default()
            };
            let now = burst.step(&evidence.vouched(w[7] & 1 << 40 == 0));
            prop_assert!(now <= evidence.quota_ns && now <= evidence.room_ns);
        }
    }

    #[test]
    fn room_is_what_the_parent_has_left(
        quota in 1_000..8_192 * SECOND, period in 1_000..=SECOND, parent in 1_000..8_192 * SECOND,
        parent_period in 1_000..=SECOND, burst in 0..8_192 * SECOND,
    ) {
        let us = |ns: u64| u128::from(ns / 1_000);
        let has = us(parent) * us(period) / us(parent_period) * 1_000 + u128::from(burst);
        let exact = has.saturating_sub(u128::from(quota));
        prop_assert_eq!(u128::from(room_ns(quota, period, parent, parent_period, burst)), exact);
    }
}

/// Half a CPU of quota in 100 ms, on four CPUs.
fn window(used_ms: u64, idle_permille: u64, throttled: u32) -> Evidence {
    Evidence {
        dt_ns: SECOND,
        quota_ns: 50 * MS,
        period_ns: 100 * MS,
        used_ns: used_ms * MS,
        room_ns: NO_PARENT,
        capacity_ns: 4 * SECOND,
        idle_ns: 4 * MS * idle_permille,
        throttled,
        ..Evidence::default()
    }
    .vouched(true)
}

#[test]
fn its_rates_are_what_they_say() {
    let mut burst = AutoBurst::new(Config::default());
    let all = 50 * MS;
    assert_eq!(
        burst.step(&window(300, 500, 5)),
        0,
        "whether the machine is calm is not known yet"
    );
    assert_eq!(burst.step(&window(300, 500, 0)), 0, "nothing was throttled");
    assert_eq!(burst.step(&window(300, 500, 1)), all, "the first evidence");
    assert_eq!(
        burst.step(&window(300, 500, 0)),
        all,
        "without evidence it stands"
    );
    assert_eq!(
        burst.step(&window(300, 49, 5)),
        0,
        "the machine is short: within a second all is gone"
    );
    let half = Evidence {
        dt_ns: SECOND / 2,
        capacity_ns: 2 * SECOND,
        idle_ns: SECOND,
        used_ns: 150 * MS,
        ..window(300, 500, 1)
    };
    let after: Vec<u64> = (0..3).map(|_| burst.step(&half)).collect();
    assert_eq!(after, [0, 0, all], "and comes back after a second of calm");
    assert_eq!(burst.step(&window(300, 49, 5)), 0);
    for _ in 0..60 {
        burst.step(&window(500, 500, 10));
    }
    let before = burst.burst_ns();
    assert_eq!(
        burst.step(&window(500, 500, 10)),
        before,
        "who uses all of its quota needs more quota, not burst"
    );
}

#[test]
fn bounds_hold_at_once_and_bad_evidence_cuts() {
    let mut burst = AutoBurst::new(Config::default());
    for _ in 0..2 {
        burst.step(&window(300, 500, 1));
    }
    let narrow = Evidence {
        room_ns: 7 * MS,
        ..window(300, 500, 0)
    };
    assert_eq!(burst.step(&narrow), 7 * MS, "a parent got narrower");
    let smaller = Evidence {
        quota_ns: 5 * MS,
        ..window(30, 500, 0)
    };
    assert_eq!(burst.step(&smaller), 5 * MS, "the quota got smaller");
    assert_eq!(
        burst.step(&window(300, 500, 0).vouched(false)),
        0,
        "stale: cut, never hold"
    );
    assert_eq!(burst.use_ppb(), 0);
    assert_eq!(burst.step(&window(300, 500, 1)), 0, "and from there again");
    assert_eq!(burst.step(&window(300, 500, 1)), 50 * MS);
}

#[test]
fn every_state_of_a_small_one_keeps_its_bounds() {
    // Quotas, rooms, idleness, throttling, use: any of these windows may come next.
    let mut windows = Vec::new();
    for (quota_ns, dt_ns) in [
        (20_000, SECOND),
        (50_000, SECOND),
        (50_000, SECOND / 2),
        (30_000, SECOND / 2),
    ] {
        for room_ns in [0, 12_345, NO_PARENT] {
            for (idle, throttled, used) in [(500, 0, 10), (500, 1, 10), (500, 1, 70), (10, 1, 10)] {
                windows.push(Evidence {
                    dt_ns,
                    quota_ns,
                    period_ns: 100_000,
                    room_ns,
                    ..window(used * 10, idle, throttled)
                });
            }
        }
    }
    windows.push(windows[0].vouched(false));
    // A mean over one window: a longer one has more states than a machine; the reference has those.
    let cfg = Config {
        mean_us: 500_000,
        calm_us: 1_000_000,
        shrink_ppm_per_s: 400_000,
        ..Config::default()
    };
    let states = walk("burst", AutoBurst::new(cfg), |state, found| {
        for evidence in &windows {
            let mut next = *state;
            let (before, burst) = (state.burst_ns(), next.step(evidence));
            if burst > evidence.quota_ns || burst > evidence.room_ns {
                return Err(format!("{burst} after {evidence:?}"));
            }
            let short = evidence.idle_ns * 20 < evidence.capacity_ns;
            let below = next.use_ppb() < 1_000_000_000;
            if burst > before && (short || evidence.throttled == 0 || !below) {
                return Err(format!("grew to {burst} without evidence: {evidence:?}"));
            }
            if evidence.valid == 0 {
                if burst > 0 {
                    return Err(format!("{burst} held on evidence that is not valid"));
                }
                found.push(next);
                continue;
            }
            let of_quota = |tenths| evidence.quota_ns * tenths / 10 * (evidence.dt_ns / MS) / 1_000;
            let bound = evidence.quota_ns.min(evidence.room_ns);
            if !short && burst != before.min(bound) && burst != bound {
                return Err(format!("{before} to {burst}: {evidence:?}"));
            }
            if short && burst > before.saturating_sub(of_quota(4)) {
                return Err(format!("{burst}, and the machine is short: {evidence:?}"));
            }
            found.push(next);
        }
        Ok(())
    });
    println!("burst: {states} states, all of them");
    assert!(states > 100, "{states}");
}
