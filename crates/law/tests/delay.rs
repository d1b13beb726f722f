//! The extra headroom for main's run delay: against a slow reference model, its promises, and every state of a small one.

#![allow(missing_docs, clippy::unwrap_used)]

#[path = "support/delay_reference.rs"]
mod reference;
mod support;

use proptest::prelude::*;
use reference::Reference;
use support::walk;
use tidegate_law::delay::{Config, Delay, Evidence, State};

const MS: u64 = 1_000_000;
const P99: u32 = 10_000;

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

/// 5 ms of a machine of four CPUs on which main begins to run ten times.
fn window(late: u64, side_pct: u64) -> Evidence {
    Evidence {
        dt_ns: 5 * MS,
        runs: 10,
        late,
        side_ns: 20 * MS / 100 * side_pct,
        capacity_ns: 20 * MS,
        floor_ppm: 10_000,
        ..Evidence::default()
    }
    .vouched(true)
}

/// Steps through `ms` with so many late runs in each window; the most and the last extra headroom, percent.
fn through(law: &mut Delay, ms: u64, late: u64, side_pct: u64) -> (u32, u32) {
    let mut most = 0;
    for _ in 0..ms / 5 {
        most = most.max(law.step(&window(late, side_pct)) / 10_000);
    }
    (most, law.extra_ppm() / 10_000)
}

#[test]
fn quick_up_slow_down_and_never_above_the_bound() {
    let mut law = Delay::new(Config::default(), P99, 0);
    assert_eq!(through(&mut law, 10_000, 0, 40), (0, 0));
    let config = Config {
        alarm: 4,
        ..Config::default()
    };
    let mut law = Delay::new(config, P99, 0);
    through(&mut law, 10_000, 0, 40);
    assert_eq!(
        through(&mut law, 1_000, 1, 40).1,
        23,
        "5, 10, 15 and half as much again, 0.3 s apart"
    );
    let (most, last) = through(&mut law, 2_000, 1, 40);
    assert!(most == 60 && last == 60, "{most} {last}");
    assert_eq!(law.state(), State::Bound);
    assert_eq!(through(&mut law, 5_000, 0, 40).1, 60, "held");
    let (_, last) = through(&mut law, 20_000, 0, 40);
    assert!((39..=41).contains(&last), "1 % a second: {last}");
    assert_eq!(law.state(), State::Release);
    assert_eq!(through(&mut law, 60_000, 0, 40).1, 0);
    assert_eq!(law.state(), State::Fine);
}

#[test]
fn after_a_quiet_time_it_rises_by_one_step() {
    let mut law = Delay::new(Config::default(), P99, 400_000);
    through(&mut law, 6_000, 0, 40);
    let before = law.extra_ppm();
    for _ in 0..1_000 {
        if law.raises() == 0 {
            law.step(&window(1, 40));
        }
    }
    assert_eq!(law.extra_ppm(), before + 50_000);
}

#[test]
fn below_home_it_goes_only_where_main_is_well() {
    let home = 200_000;
    // Nobody runs: nothing is known. A few runs: no more. Half of what may be late: still not well.
    for (runs, late_of) in [(0, 1_000), (1, 1_000_000), (10, 15)] {
        let mut law = Delay::new(Config::default(), P99, home);
        for n in 0..2_000 {
            let late = u64::from(runs > 0 && n % late_of == late_of - 1);
            law.step(&Evidence {
                runs,
                ..window(late, 0)
            });
        }
        assert_eq!(law.extra_ppm(), home, "{runs} runs a window");
    }
    let mut law = Delay::new(Config::default(), P99, home);
    assert_eq!(
        through(&mut law, 40_000, 0, 40).1,
        0,
        "main is well: side work may have it all"
    );
    // Main is in trouble of its own making, beside no side work: home, and no further.
    assert_eq!(through(&mut law, 60_000, 5, 0), (20, 20));
    // In vain: home as well.
    let mut law = Delay::new(Config::default(), P99, home);
    for _ in 0..10_000 {
        if law.vain() == 0 {
            law.step(&window(2, 40));
        }
    }
    assert_eq!((law.extra_ppm(), law.state()), (home, State::Rest));
}

#[test]
fn as_many_late_runs_as_the_objective_allows_are_no_alarm() {
    let mut law = Delay::new(Config::default(), P99, 0);
    for n in 0..20_000 {
        law.step(&window(u64::from(n % 10 == 0), 40));
    }
    assert_eq!((law.extra_ppm(), law.raises()), (0, 0));
}

#[test]
fn what_main_does_to_itself_raises_nothing() {
    let mut law = Delay::new(Config::default(), P99, 0);
    // Side work has its tolerance and no more: it cannot be the cause.
    assert_eq!(through(&mut law, 60_000, 5, 1), (0, 0));
    assert_eq!(law.raises(), 0);
}

#[test]
fn where_it_does_not_help_it_is_given_back_and_left_alone() {
    let mut law = Delay::new(Config::default(), P99, 0);
    // Side work runs, and main is late all the same, whatever side work gives up.
    let mut paid = 0;
    let windows = 10 * 60 * 200;
    for _ in 0..windows {
        paid += u64::from(law.step(&window(2, 40)));
    }
    assert!(law.vain() >= 8, "{} times", law.vain());
    let mean_pct = paid / windows / 10_000;
    assert!(mean_pct <= 4, "{mean_pct} % of the machine for nothing");
}

#[test]
fn where_it_helps_by_half_it_stays() {
    let mut law = Delay::new(Config::default(), P99, 0);
    through(&mut law, 2_500, 5, 40);
    assert_eq!(law.extra_ppm(), 600_000);
    assert_eq!(through(&mut law, 60_000, 1, 40).1, 60);
    assert_eq!((law.state(), law.vain()), (State::Bound, 0));
}

#[test]
fn a_bad_sample_changes_nothing_and_is_no_evidence() {
    let mut law = Delay::new(Config::default(), P99, 200_000);
    assert_eq!(law.extra_ppm(), 200_000);
    for _ in 0..2_000 {
        law.step(&window(9, 40).vouched(false));
    }
    assert_eq!((law.extra_ppm(), law.raises()), (200_000, 0));
    let near = Evidence {
        runs: 100,
        ..window(15, 40)
    };
    law.step(&near);
    law.set_objective(1);
    for _ in 0..2 {
        law.step(&Evidence {
            runs: 1,
            ..window(1, 40)
        });
    }
    assert_eq!(law.raises(), 0, "the old score is not held against main");
    assert_eq!(
        law.extra_ppm(),
        200_000,
        "another objective is judged anew from here"
    );
}

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
    let of = |late, side| Evidence {
        dt_ns: 100 * MS,
        runs: 2,
        late,
        capacity_ns: 400 * MS,
        ..window(0, side)
    };
    let windows = [
        of(0, 90),
        of(1, 90),
        of(2, 90),
        of(2, 0),
        of(2, 90).vouched(false),
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

/// Counters that only grow would make a small machine endless: the walk ends a path where they are large.
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
