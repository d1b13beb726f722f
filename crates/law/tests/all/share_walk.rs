//! Every division of small allowances over up to three targets, against handing out one ucpu at a
//! time.

use tidegate_law::{Demand, share};

/// The slow way: floors first; then each single ucpu to the one of those below their demand that is
/// lowest by its weight; what is left when all demands are met likewise, to all. `None` where two
/// stand equally low: there several answers are fair.
fn reference(allowance: u64, targets: &[(u64, u64, u64)]) -> (Vec<u64>, u64) {
    let mut out: Vec<u64> = targets.iter().map(|target| target.2).collect();
    let mut ties = 0;
    while out.iter().sum::<u64>() < allowance {
        let open: Vec<usize> = (0..out.len()).filter(|i| out[*i] < targets[*i].1).collect();
        if open.is_empty() {
            break;
        }
        // The next one goes to whom it lifts the least.
        let lifted = |i: usize| (out[i] + 1) * 6 / targets[i].0;
        let least = open.iter().map(|i| lifted(*i)).min().unwrap();
        ties += u64::from(open.iter().filter(|i| lifted(**i) == least).count() > 1);
        let who = *open.iter().find(|i| lifted(**i) == least).unwrap();
        out[who] += 1;
    }
    (out, ties)
}

fn check(allowance: u64, targets: &[(u64, u64, u64)]) -> u64 {
    let demands: Vec<Demand> = targets
        .iter()
        .map(|(weight, demand, floor)| {
            Demand::new(u32::try_from(*weight).unwrap(), *demand, *floor)
        })
        .collect();
    let mut out = vec![0; targets.len()];
    share(allowance, &demands, &mut out);
    let floors: u64 = targets.iter().map(|target| target.2).sum();
    assert_eq!(
        out.iter().sum::<u64>(),
        allowance.max(floors),
        "{allowance} over {targets:?}: {out:?}"
    );
    let wanted: u64 = targets.iter().map(|target| target.1.max(target.2)).sum();
    for (got, target) in out.iter().zip(targets) {
        assert!(*got >= target.2, "{allowance} over {targets:?}: {out:?}");
        if wanted >= allowance {
            assert!(
                *got <= target.1.max(target.2),
                "{allowance} over {targets:?}: {out:?}"
            );
        } else {
            assert!(*got >= target.1, "{allowance} over {targets:?}: {out:?}");
        }
    }
    if wanted < allowance {
        return 0;
    }
    let (slow, ties) = reference(allowance, targets);
    for (got, due) in out.iter().zip(&slow) {
        // A level is shared to one ucpu a target.
        assert!(
            got.abs_diff(*due) <= 1,
            "{allowance} over {targets:?}: {out:?}, slowly {slow:?}"
        );
    }
    u64::from(ties == 0)
}

#[test]
fn every_small_division() {
    let mut kinds = Vec::new();
    for weight in [1, 2, 3] {
        for demand in [0, 1, 3, 7] {
            for floor in [0, 2] {
                kinds.push((weight, demand, floor));
            }
        }
    }
    let (mut cases, mut plain) = (0u64, 0);
    for allowance in 0..=14 {
        for a in &kinds {
            for b in &kinds {
                for c in &kinds {
                    plain += check(allowance, &[*a, *b, *c]);
                    cases += 1;
                }
            }
        }
    }
    println!("share: {cases} divisions, {plain} of them with one answer");
    assert!(plain > 1_000);
}
