//! Every state of a capped CPU whose terms change at any instant, in search of CPU time made out of changes.
//!
//! The bound (law/cap.md): over any window in which there is a cap, use <= the sum of rate * time + the larger depth + a
//! granularity. Steps of half a millisecond; rates and depths as tg_cap_set makes them.

use std::cell::Cell;

use crate::support::walk;
use tidegate_law::cap::{Cap, Family, State, Terms};

const NOW: u64 = 1_000_000_000;
const STEP_NS: u64 = 500_000;
const GRANULARITY_NS: u64 = 1_000_000;
/// The larger depth of the two rates.
const DEPTH_NS: i64 = 3_000_000;
/// Two caps and none.
const RATES: [Option<u32>; 3] = [Some(100), Some(300), None];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Capped {
    level_ns: i64,
    terms: usize,
    runs: Option<u64>,
    over_ns: i64,
}

impl Capped {
    fn cap(&self) -> Cap {
        let mut cap = Cap::default();
        cap.set(&terms(0), NOW);
        cap.set(&terms(self.terms), NOW);
        cap.hard.level_ns = self.level_ns;
        cap
    }
}

fn terms(which: usize) -> Terms {
    Terms::group(RATES[which], None, GRANULARITY_NS)
}

/// One step on: the bucket as `cap` has it, under these terms.
fn advance(mut cap: Cap, terms: usize, runs: Option<u64>, over_ns: i64) -> Capped {
    cap.charge(0, NOW + STEP_NS, false, 0);
    let used = if runs.is_some() { STEP_NS as i64 } else { 0 };
    let due = |rate: u32| STEP_NS as i64 * i64::from(rate) / 1000;
    Capped {
        level_ns: cap.hard.level_ns,
        terms,
        runs: runs.map(|unchecked| unchecked + STEP_NS),
        // While there is no cap there is no window to judge.
        over_ns: RATES[terms].map_or(0, |rate| (over_ns + used - due(rate)).max(0)),
    }
}

#[test]
fn changing_terms_makes_no_cpu_time() {
    let start = Capped {
        level_ns: 0,
        terms: 0,
        runs: None,
        over_ns: 0,
    };
    let bound = DEPTH_NS + GRANULARITY_NS as i64;
    let worst = Cell::new(0);
    let count = walk("terms that change", start, |state, found| {
        worst.set(worst.get().max(state.over_ns));
        if state.over_ns > bound {
            return Err(format!("{} ns over, bound {bound}", state.over_ns));
        }
        for changed in 0..RATES.len() {
            // Use is charged before the terms change, as cap.h demands.
            let mut cap = state.cap();
            let must_check = state
                .runs
                .is_some_and(|unchecked| unchecked >= GRANULARITY_NS);
            if changed == state.terms && !must_check {
                found.push(advance(cap, changed, state.runs, state.over_ns));
            }
            if let Some(unchecked) = state.runs {
                cap.charge(unchecked, NOW, false, 0);
            }
            if changed != state.terms {
                cap.set(&terms(changed), NOW);
            }
            found.push(advance(cap, changed, None, state.over_ns));
            if cap.state(&mut Family::default(), NOW, 0) == State::Run {
                found.push(advance(cap, changed, Some(0), state.over_ns));
            }
        }
        Ok(())
    });
    println!(
        "terms that change: {count} states, all of them; worst window {} of {bound} ns over the rate",
        worst.get()
    );
    assert!(
        worst.get() + GRANULARITY_NS as i64 > bound,
        "{}",
        worst.get()
    );
    assert!(count > 1_000, "{count}");
}
