//! The promises of water-filling, one by one.

use proptest::prelude::*;
use tidegate_law::{Demand, SHARE_MAX, WEIGHT_MAX, share};

const MAX_UCPU: u64 = 8_192_000_000;

fn demand() -> impl Strategy<Value = Demand> {
    let amount = prop_oneof![Just(0u64), 1..100u64, 1..4_000_000u64, 1..64_000_000u64];
    let weight = prop_oneof![Just(1u32), Just(100), 1..=WEIGHT_MAX];
    let floor = prop_oneof![Just(0u64), 1..50_000u64];
    (weight, amount, floor).prop_map(|(weight, amount, floor)| Demand::new(weight, amount, floor))
}

fn run(allowance: u64, demands: &[Demand]) -> Vec<u64> {
    let mut out = vec![0; demands.len()];
    share(allowance, demands, &mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn keeps_its_promises(
        allowance in 0..64_000_000u64,
        demands in prop::collection::vec(demand(), 1..24),
    ) {
        let out = run(allowance, &demands);
        let floors: u64 = demands.iter().map(|d| d.floor_ucpu).sum();
        prop_assert_eq!(out.iter().sum::<u64>(), allowance.max(floors), "all of it, and no more");
        let all_met = demands.iter().zip(&out).all(|(d, got)| *got >= d.demand_ucpu);
        for (d, got) in demands.iter().zip(&out) {
            prop_assert!(*got >= d.floor_ucpu);
            prop_assert!(all_met || *got <= d.demand_ucpu.max(d.floor_ucpu));
        }
        // Between two that are both held by the level alone: proportional to weight.
        let held: Vec<(&Demand, u64)> = demands.iter().zip(out.iter().copied())
            .filter(|(d, got)| *got > d.floor_ucpu + 1 && *got + 1 < d.demand_ucpu).collect();
        for (a, got_a) in &held {
            for (b, got_b) in &held {
                let (left, right) = (got_a * b.weight, got_b * a.weight);
                prop_assert!(left.abs_diff(right) <= 2 * a.weight.max(b.weight));
            }
        }
    }

    #[test]
    fn more_to_share_takes_from_no_target(
        allowance in 0..64_000_000u64,
        more in 0..1_000_000u64,
        demands in prop::collection::vec(demand(), 1..24),
    ) {
        let (before, after) = (run(allowance, &demands), run(allowance + more, &demands));
        for (b, a) in before.iter().zip(&after) {
            prop_assert!(a + 1 >= *b, "{b} fell to {a}");
        }
    }

    #[test]
    fn any_input_is_survived(
        allowance in any::<u64>(),
        raw in prop::collection::vec((any::<u32>(), any::<u64>(), any::<u64>()), 0..40),
    ) {
        let demands: Vec<Demand> = raw.iter().map(|r| Demand::new(r.0, r.1, r.2)).collect();
        for (d, got) in demands.iter().zip(run(allowance, &demands)) {
            prop_assert!(got >= d.floor_ucpu.min(MAX_UCPU) && got <= MAX_UCPU);
        }
    }
}

#[test]
fn a_thousand_targets_and_none() {
    assert!(run(5, &[]).is_empty());
    let demands = vec![Demand::new(1, u64::MAX, 1_000); SHARE_MAX];
    let out = run(1_024_000_000, &demands);
    assert!(out.iter().all(|got| *got == 1_000_000));
    let beyond = vec![Demand::new(1, u64::MAX, 7); SHARE_MAX + 1];
    assert_eq!(run(1_000_000, &beyond)[SHARE_MAX], 7);
}
