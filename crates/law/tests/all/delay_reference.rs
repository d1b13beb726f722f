//! The extra headroom for main's run delay against a slow reference model.

use crate::support::delay_reference::Reference;
use proptest::prelude::*;
use tidegate_law::delay::{Config, Delay, Evidence};

const MS: u64 = 1_000_000;

fn evidence() -> impl Strategy<Value = (Evidence, bool)> {
    let dt = prop_oneof![8 => 5 * MS..60 * MS, 1 => 0..3_000 * MS];
    let late = prop_oneof![4 => Just(0_u64), 2 => 0..40_u64, 1 => 0..2_000_u64];
    let valid = prop::bool::weighted(0.98);
    (
        dt,
        0..1_000_u64,
        late,
        0..1_100_u64,
        1..64_u64,
        0..30_000_u32,
        valid,
    )
        .prop_map(|(dt_ns, runs, late, side, cpus, floor_ppm, valid)| {
            let capacity_ns = cpus * dt_ns;
            let evidence = Evidence {
                dt_ns,
                runs,
                // One in some hundred windows tells more late runs than runs: no such thing.
                late: if late > 1_990 { late } else { late.min(runs) },
                side_ns: capacity_ns / 1000 * side,
                capacity_ns,
                floor_ppm,
                ..Evidence::default()
            };
            (evidence.vouched(valid), valid)
        })
}

fn tuning() -> impl Strategy<Value = Config> {
    let times = (
        1..400_000_u32,
        1..2_000_000_u32,
        1..600_000_u32,
        1..2_000_000_u32,
    );
    (
        1..12_u32,
        1..300_000_u32,
        0..1_000_000_u32,
        0..3_000_000_u32,
        0..100_000_u32,
        times,
    )
        .prop_map(
            |(alarm, step_ppm, most_ppm, release, side_ppm, (settle, hold, vain, rest))| Config {
                alarm,
                step_ppm,
                most_ppm,
                settle_us: settle,
                hold_us: hold,
                release_ppm_per_s: release,
                side_ppm,
                vain_us: vain,
                rest_us: rest,
                dt_max_us: 1_000_000,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn agrees_with_the_reference(
        cfg in tuning(), share in 1..300_000_u32, start in 0..1_000_000_u32,
        windows in prop::collection::vec(evidence(), 1..200),
    ) {
        let (mut ours, mut reference) = (Delay::new(cfg, share, start), Reference::new(cfg, share, start));
        for (evidence, valid) in windows {
            prop_assert_eq!(ours.step(&evidence), reference.step(&evidence, valid), "{:?} {:?}", ours, reference);
            prop_assert!(ours.extra_ppm() <= cfg.most_ppm);
        }
    }

    #[test]
    fn any_evidence_is_survived(
        cfg in prop::array::uniform10(any::<u32>()), share in any::<u32>(), start in any::<u32>(),
        words in prop::collection::vec(prop::array::uniform6(any::<u64>()), 1..60),
    ) {
        let cfg = Config {
            alarm: cfg[0], step_ppm: cfg[1], most_ppm: cfg[2], settle_us: cfg[3] >> 8, hold_us: cfg[4] >> 6,
            release_ppm_per_s: cfg[5], side_ppm: cfg[6] >> 14, vain_us: cfg[7] >> 8, rest_us: cfg[8] >> 8,
            dt_max_us: cfg[9],
        };
        let (mut ours, mut reference) = (Delay::new(cfg, share, start), Reference::new(cfg, share, start));
        for w in words {
            let cut = |x: u64| x >> (x % 64);
            let runs = cut(w[1]);
            let evidence = Evidence {
                dt_ns: cut(w[0]), runs, late: if w[5] & 1 == 0 { cut(w[2]) } else { runs / 2 }, side_ns: cut(w[3]),
                capacity_ns: cut(w[4]), floor_ppm: w[5] as u32, ..Evidence::default()
            };
            let valid = w[5] & 1 << 40 == 0;
            let extra = ours.step(&evidence.vouched(valid));
            prop_assert_eq!(extra, reference.step(&evidence, valid));
            prop_assert!(extra <= cfg.most_ppm.min(1_000_000));
        }
    }
}
