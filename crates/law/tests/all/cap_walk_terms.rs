//! Every state of a capped CPU whose terms change at any instant, in search of CPU time made out of
//! changes.
//!
//! The bound (law/cap.md): over any window in which there is a cap, use <= the sum of rate * time +
//! the larger depth + a least loan and a lateness. Steps of half a millisecond; rates and depths as
//! tg_cap_set makes them.

use std::cell::Cell;

use crate::support::walk;
use tidegate_law::cap::{Cap, Family, Loan, NEVER_NS, State, Terms};

const NOW: u64 = 1_000_000_000;
const STEP_NS: u64 = 500_000;
const LEAST_NS: u64 = STEP_NS;
const LEND_NS: u64 = 2 * STEP_NS;
const LATE_NS: u64 = STEP_NS;
/// The larger depth of the two rates.
const DEPTH_NS: i64 = 3_000_000;
/// Two caps and none.
const RATES: [Option<u32>; 3] = [Some(100), Some(300), None];

/// A run: so long since its last check, of so long as it may; what it has borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Run {
    unchecked: u64,
    run_ns: u64,
    loan_ns: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Capped {
    level_ns: i64,
    terms: usize,
    runs: Option<Run>,
    over_ns: i64,
}

impl Capped {
    fn cap(&self) -> Cap {
        let mut cap = Cap::default();
        cap.set(&terms(0), NOW);
        cap.set(&terms(self.terms), NOW);
        cap.hard.level_ns = self.level_ns;
        cap.hard.lent_ns = self.runs.map_or(0, |run| u64::from(run.loan_ns));
        cap
    }
}

fn terms(which: usize) -> Terms {
    Terms::group(RATES[which], None, LEAST_NS)
}

/// The run ends: it is charged, and returns its loan.
fn stop(cap: &mut Cap, runs: Option<Run>) {
    let Some(run) = runs else { return };
    let mut loan = Loan {
        hard_ns: run.loan_ns,
        soft_ns: 0,
    };
    cap.charge_run(&mut loan, run.unchecked, NOW, false, 0);
    cap.repay(&mut loan);
}

/// One step on: the bucket as `cap` has it, under these terms.
fn advance(mut cap: Cap, terms: usize, runs: Option<Run>, over_ns: i64) -> Capped {
    cap.charge(0, NOW + STEP_NS, false, 0);
    let used = if runs.is_some() { STEP_NS as i64 } else { 0 };
    let due = |rate: u32| STEP_NS as i64 * i64::from(rate) / 1000;
    Capped {
        level_ns: cap.hard.level_ns,
        terms,
        runs: runs.map(|run| Run {
            unchecked: run.unchecked + STEP_NS,
            ..run
        }),
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
    let bound = DEPTH_NS + (LEAST_NS + LATE_NS) as i64;
    let worst = Cell::new(0);
    let count = walk("terms that change", start, |state, found| {
        worst.set(worst.get().max(state.over_ns));
        if state.over_ns > bound {
            return Err(format!("{} ns over, bound {bound}", state.over_ns));
        }
        for changed in 0..RATES.len() {
            let mut cap = state.cap();
            if changed != state.terms {
                cap.set(&terms(changed), NOW);
            }
            // It goes on: a change of terms does not stop it.
            if state
                .runs
                .is_none_or(|run| run.unchecked < run.run_ns + LATE_NS)
            {
                found.push(advance(cap, changed, state.runs, state.over_ns));
            }
            stop(&mut cap, state.runs);
            found.push(advance(cap, changed, None, state.over_ns));
            if cap.state(&mut Family::default(), NOW, 0) == State::Run {
                let mut loan = Loan::default();
                let run_ns = cap.lend(&mut loan, NOW, false, LEAST_NS, LEND_NS);
                let run = Run {
                    unchecked: 0,
                    // Without a cap nothing bounds it: it is looked at in each step.
                    run_ns: if run_ns == NEVER_NS { 0 } else { run_ns },
                    loan_ns: loan.hard_ns,
                };
                found.push(advance(cap, changed, Some(run), state.over_ns));
            }
        }
        Ok(())
    });
    println!(
        "terms that change: {count} states, all of them; worst window {} of {bound} ns over the rate",
        worst.get()
    );
    assert!(worst.get() + 1_000_000 > bound, "{}", worst.get());
    assert!(count > 1_000, "{count}");
}
