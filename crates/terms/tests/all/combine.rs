//! What several gates ask for comes to one value each, whatever their order.

use proptest::prelude::*;
use tidegate_terms::combine::{headroom, objective, tolerance};

type Late = (u64, u32);

fn largest(ppm: &[u32]) -> Option<u32> {
    headroom(ppm.iter().copied(), |ppm| *ppm)
}

fn smallest(ppm: &[u32]) -> Option<u32> {
    tolerance(ppm.iter().copied(), |ppm| *ppm)
}

fn strictest(late: &[Late]) -> Option<Late> {
    objective(late.iter().copied(), |late| *late)
}

/// The same in any order, in any grouping, and of repeated values.
fn is_a_merge<T: Copy + PartialEq + std::fmt::Debug>(
    all: &[T],
    split: usize,
    merge: fn(&[T]) -> Option<T>,
) {
    let merged = merge(all);
    let reversed: Vec<T> = all.iter().rev().copied().collect();
    assert_eq!(merge(&reversed), merged, "order");
    assert_eq!(merge(&[all, all].concat()), merged, "repetition");
    let (left, right) = all.split_at(split.min(all.len()));
    let halves: Vec<T> = [merge(left), merge(right)].into_iter().flatten().collect();
    assert_eq!(merge(&halves), merged, "grouping");
    assert_eq!(merged.is_none(), all.is_empty());
    assert!(merged.is_none_or(|one| all.contains(&one)), "one of them");
}

proptest! {
    #[test]
    fn order_grouping_and_repetition_change_nothing(
        ppm in prop::collection::vec(0_u32..=1_000_000, 0..8),
        late in prop::collection::vec((50_000_u64..1_000_000_000, 100_u32..=500_000), 0..8),
        split in 0_usize..8,
    ) {
        is_a_merge(&ppm, split, largest);
        is_a_merge(&ppm, split, smallest);
        is_a_merge(&late, split, strictest);
    }

    #[test]
    fn every_gate_has_what_it_asked_for(
        ppm in prop::collection::vec(0_u32..=1_000_000, 1..8),
        late in prop::collection::vec((0_u64..4, 0_u32..4), 1..8),
    ) {
        let (most, least) = (largest(&ppm).unwrap(), smallest(&ppm).unwrap());
        prop_assert!(ppm.iter().all(|one| least <= *one && *one <= most));
        let (span_ns, share_ppm) = strictest(&late).unwrap();
        for one in &late {
            prop_assert!(span_ns < one.0 || (span_ns == one.0 && share_ppm <= one.1));
        }
    }
}

#[test]
fn of_equal_values_the_first_gate_counts() {
    let gates = [("web", 300_000), ("db", 300_000), ("slow", 100_000)];
    assert_eq!(headroom(gates, |gate| gate.1), Some(gates[0]));
    assert_eq!(tolerance(&gates[..2], |gate| gate.1), Some(&gates[0]));
    let late = [("web", (5_000_000, 1_000)), ("db", (5_000_000, 1_000))];
    assert_eq!(objective(late, |gate| gate.1), Some(late[0]));
}
