//! Every state of a small machine under the extra headroom for main's run delay.

use crate::support::walk;
use tidegate_law::delay::{Config, Delay, Evidence, State};

const MS: u64 = 1_000_000;

#[test]
fn every_state_of_a_small_one_keeps_its_bounds() {
    let cfg = Config {
        alarm: 2,
        step_ppm: 100_000,
        most_ppm: 250_000,
        settle_us: 100_000,
        hold_us: 300_000,
        release_ppm_per_s: 500_000,
        side_ppm: 20_000,
        vain_us: 200_000,
        rest_us: 300_000,
        dt_max_us: 1_000_000,
    };
    // The floor is 1 % of the machine; side work has as much or, where it runs, enough to be the
    // cause.
    let of = |late, side_us: u64| {
        Evidence {
            dt_ns: 100 * MS,
            runs: 2,
            late,
            side_ns: side_us * 1_000,
            capacity_ns: 400 * MS,
            floor_ppm: 10_000,
            ..Evidence::default()
        }
        .vouched(true)
    };
    let windows = [
        of(0, 18_000),
        of(1, 18_000),
        of(2, 18_000),
        of(2, 0),
        of(2, 18_000).vouched(false),
    ];
    // Half of the runs may be late: few runs decide, so there are few states.
    let states = walk("delay", Capped::new(cfg), |state, found| {
        for (at, evidence) in windows.iter().enumerate() {
            let mut next = *state;
            let (before, rested) = (state.law.extra_ppm(), state.law.state() == State::Rest);
            let extra = next.law.step(evidence);
            if extra > 250_000 {
                return Err(format!("{extra} is above the bound"));
            }
            let raised = extra > before;
            if raised && (at == 0 || at > 2 || rested) {
                return Err(format!("raised without evidence: {evidence:?} {state:?}"));
            }
            let vain = next.law.vain() != state.law.vain();
            if before - extra.min(before) > 60_000 && !vain {
                return Err(format!("{before} to {extra} at once: {state:?}"));
            }
            if let Some(next) = next.counted() {
                found.push(next);
            }
        }
        Ok(())
    });
    println!("delay: {states} states");
    assert!(states > 10_000, "{states}");
}

/// Counters that only grow would make a small machine endless: the walk ends a path where they are
/// large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Capped {
    law: Delay,
    steps: u8,
}

impl Capped {
    fn new(cfg: Config) -> Self {
        Self {
            law: Delay::new(cfg, 500_000, 0),
            steps: 0,
        }
    }

    fn counted(mut self) -> Option<Self> {
        self.steps += 1;
        (self.steps <= 18).then_some(self)
    }
}
