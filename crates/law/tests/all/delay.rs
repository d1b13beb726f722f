//! The promises of the extra headroom for main's run delay, one by one.

use proptest::prelude::*;
use tidegate_law::delay::{Config, Delay, Evidence, State};

const MS: u64 = 1_000_000;
const P99: u32 = 10_000;

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

/// Steps through `ms` with so many late runs in each window; the most and the last extra headroom,
/// percent.
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
    // No task runs: nothing is known. A few runs: no more. Half of what may be late: still not
    // well.
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
    // Long enough after the start for evidence to count.
    through(&mut law, 3_000, 0, 40);
    let near = Evidence {
        runs: 100,
        ..window(16, 40)
    };
    law.step(&near);
    assert_eq!(law.raises(), 0, "near an alarm");
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
        "another objective is judged from here"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

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
        let mut law = Delay::new(cfg, share, start);
        for w in words {
            let cut = |x: u64| x >> (x % 64);
            let runs = cut(w[1]);
            let evidence = Evidence {
                dt_ns: cut(w[0]), runs, late: if w[5] & 1 == 0 { cut(w[2]) } else { runs / 2 }, side_ns: cut(w[3]),
                capacity_ns: cut(w[4]), floor_ppm: w[5] as u32, ..Evidence::default()
            };
            let extra = law.step(&evidence.vouched(w[5] & 1 << 40 == 0));
            prop_assert!(extra <= cfg.most_ppm.min(1_000_000));
        }
    }
}
