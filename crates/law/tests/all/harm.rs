//! The promises of the measurement of harm, one by one; `harm_power.rs` has the long tables.

use crate::support::queue::{Arrivals, Bed, Effect, MS, Main, Random, SECOND};
use tidegate_law::harm::{Arm, Config, Harm, Reason, Verdict, Window, Wish};

pub const NONE: Effect = Effect {
    service: 0.0,
    wait: 0.0,
    late_one_in: 0,
};

pub fn service(service: f64) -> Effect {
    Effect { service, ..NONE }
}

fn found(law: &Harm) -> bool {
    law.verdict() == Verdict::Found
}

/// Steps with windows of 50 ms that `main` makes from the level and the number of the window.
pub fn steps(law: &mut Harm, seconds: u64, mut main: impl FnMut(Arm, u64) -> Window) {
    for at in 0..seconds * 20 {
        let arm = law.arm();
        let window = Window {
            length_ns: 50 * MS,
            ..main(arm, at)
        };
        law.step(&window.at(arm));
    }
}

/// A main of one CPU's half, with some noise, whose work takes `by_pct` of its time at the higher level.
pub fn even(arm: Arm, random: &mut Random, by_pct: u64) -> Window {
    let cpu_ns = 20 * MS + random.next() % (10 * MS);
    Window {
        turns: 25,
        cpu_ns: if arm == Arm::High {
            cpu_ns * by_pct / 100
        } else {
            cpu_ns
        },
        ..Window::default()
    }
}

#[test]
fn a_large_harm_is_found_at_the_first_look_and_asks_for_headroom() {
    let mut bed = Bed::new(Main::default(), Harm::new(Config::default(), 1), 1);
    let took_s = bed.until(60, service(1.0), found).unwrap();
    assert!(took_s < 16.0, "{took_s} s");
    assert_eq!((bed.law.wish(), bed.law.held()), (Wish::Raise, Arm::Low));
    assert!(!bed.law.learning());
    let ratio = bed.law.ratio_ppm();
    assert!((1_700_000..2_700_000).contains(&ratio), "{ratio}");
    assert!(bed.law.lower_ppm() > 1_050_000);
}

#[test]
fn no_harm_is_known_and_gives_headroom_back() {
    let mut settled = 0;
    for seed in 0..40 {
        let mut bed = Bed::new(Main::default(), Harm::new(Config::default(), seed), seed);
        if bed
            .until(120, NONE, |law| law.verdict() == Verdict::None)
            .is_some()
        {
            settled += 1;
            assert_eq!((bed.law.wish(), bed.law.held()), (Wish::Lower, Arm::High));
            assert!(bed.law.upper_ppm() < 1_050_000);
        }
    }
    assert!(settled >= 30, "{settled} of 40 within 120 s");
}

#[test]
fn the_levels_come_from_the_seed_and_half_of_the_time_is_each() {
    let levels = |seed| {
        let (mut law, mut random) = (Harm::new(Config::default(), seed), Random(5));
        let mut levels = Vec::new();
        steps(&mut law, 10, |arm, _| {
            levels.push(arm);
            even(arm, &mut random, 100)
        });
        levels
    };
    assert_eq!(levels(7), levels(7));
    assert_ne!(levels(7), levels(8));
    let mut law = Harm::new(
        Config {
            pairs_min: 1_000,
            ..Config::default()
        },
        3,
    );
    let (mut random, mut high, mut first, mut pairs, mut last) = (Random(6), 0, 0, 0, 0);
    steps(&mut law, 280, |arm, _| {
        high += u64::from(arm == Arm::High);
        even(arm, &mut random, 100)
    });
    assert!((2_600..3_000).contains(&high), "{high} of 5,600 windows");
    let mut law = Harm::new(
        Config {
            pairs_min: 1_000,
            learn_us: u32::MAX,
            ..Config::default()
        },
        4,
    );
    for _ in 0..40_000 {
        if law.pairs() != last || pairs == 0 {
            last = law.pairs();
            pairs += 1;
            first += u32::from(law.arm() == Arm::High);
        }
        let window = Window {
            length_ns: 50 * MS,
            cpu_ns: 25 * MS,
            ..Window::default()
        };
        law.step(&window.at(law.arm()));
    }
    let share = f64::from(first) / f64::from(pairs);
    assert!(
        pairs > 1_500 && (0.46..0.54).contains(&share),
        "{share} of {pairs} pairs begin high"
    );
}

#[test]
fn no_effect_is_no_finding_whatever_main_does() {
    let base = Main {
        rate: 100.0,
        service_us: 4_000.0,
        ..Main::default()
    };
    let mains = [
        base,
        Main {
            arrivals: Arrivals::Drift {
                factor: 4.0,
                period_s: 20.0,
            },
            service_us: 1_500.0,
            ..base
        },
        Main {
            arrivals: Arrivals::Bursts {
                on_s: 2.0,
                off_s: 3.0,
            },
            ..base
        },
        Main {
            long_one_in: 100,
            long_us: 100_000.0,
            service_us: 1_000.0,
            ..base
        },
        Main {
            arrivals: Arrivals::Closed {
                callers: 4,
                think_us: 20_000.0,
            },
            ..base
        },
        Main {
            cpus: 16,
            cv: 3.0,
            service_us: 30_000.0,
            ..base
        },
    ];
    let mut wrong = 0;
    for (at, main) in (0_u64..).zip(mains) {
        for seed in 0..4 {
            let mut bed = Bed::new(main, Harm::new(Config::default(), seed + 50 * at), seed);
            wrong += u32::from(bed.until(3_600, NONE, found).is_some());
        }
    }
    assert!(wrong <= 1, "{wrong} of 24 hours with a finding");
}

#[test]
fn eight_per_cent_are_found_in_a_minute_and_five_in_two() {
    let within = |effect, seconds| {
        (0..60_u64)
            .filter(|seed| {
                let law = Harm::new(Config::default(), seed + 400);
                let mut bed = Bed::new(Main::default(), law, *seed);
                bed.until(seconds, service(effect), found).is_some()
            })
            .count()
    };
    let (eight, five) = (within(0.08, 60), within(0.05, 120));
    assert!(eight >= 45 && five >= 36, "{eight} and {five} of 60");
}

#[test]
fn once_it_knows_probes_are_few() {
    let mut bed = Bed::new(
        Main {
            rate: 2_000.0,
            service_us: 200.0,
            ..Main::default()
        },
        Harm::new(Config::default(), 2),
        2,
    );
    bed.until(300, NONE, |law| !law.learning()).unwrap();
    let (probed, known) = (bed.probed_ns, bed.known_ns);
    bed.until(3_600, NONE, |_| false);
    let share = (bed.probed_ns - probed) as f64 / (bed.known_ns - known) as f64;
    assert!((0.005..0.02).contains(&share), "{share}");
}

#[test]
fn a_change_is_followed_within_five_minutes() {
    let main = Main {
        rate: 2_000.0,
        service_us: 200.0,
        ..Main::default()
    };
    let mut late = [0; 3];
    for seed in 0..12 {
        for (which, (from, to)) in [(0.0, 0.2), (0.2, 0.0), (0.2, 0.4)].into_iter().enumerate() {
            let mut bed = Bed::new(main, Harm::new(Config::default(), seed), seed + 70);
            bed.until(300, service(from), |law| !law.learning())
                .unwrap();
            bed.until(200, service(from), |_| false);
            let followed = bed.until(300, service(to), |law| match which {
                0 => found(law),
                1 => law.verdict() == Verdict::None,
                _ => !law.learning() && law.ratio_ppm() > 1_330_000,
            });
            late[which] += u32::from(followed.is_none());
        }
    }
    assert!(
        late.iter().all(|late| *late <= 2),
        "{late:?} of 12 not followed"
    );
}

#[test]
fn a_closed_set_of_callers_is_told_by_runnable_time_per_cpu_time() {
    let main = Main {
        cpus: 1,
        service_us: 1_000.0,
        arrivals: Arrivals::Closed {
            callers: 4,
            think_us: 500.0,
        },
        ..Main::default()
    };
    let mut bed = Bed::new(main, Harm::new(Config::default(), 1), 1);
    bed.until(120, Effect { wait: 0.3, ..NONE }, found).unwrap();
    assert!(bed.law.closed());
    let ratio = bed.law.ratio_ppm();
    assert!((1_200_000..1_450_000).contains(&ratio), "{ratio}");
    // Faster, with less waiting: no harm in either kind of main.
    let (mut law, mut random) = (Harm::new(Config::default(), 1), Random(1));
    steps(&mut law, 60, |arm, _| {
        let window = even(arm, &mut random, 80);
        Window {
            delay_ns: 3 * MS,
            ..window
        }
    });
    assert!(!law.closed());
    assert_eq!(law.verdict(), Verdict::None);
}

#[test]
fn what_a_level_leaves_behind_is_not_the_others() {
    // At the higher level main is overloaded; its queue drains in the lower one.
    let main = Main {
        cpus: 1,
        rate: 100.0,
        service_us: 4_000.0,
        ..Main::default()
    };
    let mut bed = Bed::new(main, Harm::new(Config::default(), 3), 3);
    bed.until(120, service(2.0), |_| false);
    assert_eq!(bed.law.verdict(), Verdict::Found);
    assert!(bed.law.ratio_ppm() > 2_000_000, "{}", bed.law.ratio_ppm());
    // The first window after each switch is wholly the other level's: not counted, so there is no harm.
    let (mut law, mut last, mut random) = (Harm::new(Config::default(), 4), Arm::Low, Random(4));
    steps(&mut law, 120, |arm, _| {
        let window = even(
            Arm::High,
            &mut random,
            if arm != last && arm == Arm::Low {
                900
            } else {
                100
            },
        );
        last = arm;
        window
    });
    assert_eq!(law.verdict(), Verdict::None);
    assert!(
        (990_000..1_010_000).contains(&law.ratio_ppm()),
        "{}",
        law.ratio_ppm()
    );
}

#[test]
fn why_it_does_not_know() {
    let unknown = |why| Verdict::Unknown(why);
    // Main sleeps.
    let mut law = Harm::new(Config::default(), 1);
    steps(&mut law, 400, |_, _| Window::default());
    assert_eq!(
        (law.verdict(), law.wish(), law.held()),
        (unknown(Reason::TooLittle), Wish::Hold, Arm::Low)
    );
    assert!(!law.learning(), "it gave up");
    steps(&mut law, 3_700, |_, _| Window::default());
    assert_eq!(law.learns(), 2, "it tries again");
    // The level was never the one that was asked for.
    let mut law = Harm::new(Config::default(), 1);
    for _ in 0..2_000 {
        let window = Window {
            length_ns: 50 * MS,
            turns: 25,
            cpu_ns: 20 * MS,
            ..Window::default()
        };
        law.step(&window.at(if law.arm() == Arm::Low {
            Arm::High
        } else {
            Arm::Low
        }));
    }
    assert_eq!(law.verdict(), unknown(Reason::Void));
    // Never asleep, so no arrivals: slower CPUs would not show.
    let mut law = Harm::new(Config::default(), 1);
    steps(&mut law, 200, |_, _| Window {
        cpu_ns: 50 * MS,
        ..Window::default()
    });
    assert_eq!(law.verdict(), unknown(Reason::TooLittle));
    // Grows by a fifth with each pair.
    let (mut law, mut cpu_ns) = (Harm::new(Config::default(), 1), MS);
    steps(&mut law, 16, |_, _| {
        cpu_ns += cpu_ns / 100;
        Window {
            turns: 25,
            cpu_ns,
            ..Window::default()
        }
    });
    assert_eq!(law.verdict(), unknown(Reason::Drift));
    // As many tasks are runnable at either level; how many of them run, goes up and down.
    let (mut law, mut random) = (Harm::new(Config::default(), 1), Random(2));
    let mut share = 1;
    steps(&mut law, 25, |_, at| {
        if at % 7 == 0 {
            share = 1 + random.next() % 30;
        }
        Window {
            turns: 25,
            cpu_ns: share * MS,
            delay_ns: (100 - share) * MS,
            ..Window::default()
        }
    });
    assert_eq!(law.verdict(), unknown(Reason::Contradicting));
}

#[test]
fn other_levels_are_learnt_from_the_start_and_silence_makes_it_forget() {
    let (mut law, mut random) = (Harm::new(Config::default(), 1), Random(1));
    steps(&mut law, 60, |arm, _| even(arm, &mut random, 200));
    assert_eq!(law.verdict(), Verdict::Found);
    law.restart();
    assert_eq!(
        (law.verdict(), law.learns()),
        (Verdict::Unknown(Reason::TooLittle), 2)
    );
    assert_eq!((law.lower_ppm(), law.ratio_ppm()), (0, 1_000_000));
    steps(&mut law, 60, |arm, _| even(arm, &mut random, 50));
    assert_eq!((law.verdict(), law.wish()), (Verdict::None, Wish::Lower));
    for _ in 0..400 * 20 {
        law.step(
            &Window {
                length_ns: SECOND / 20,
                ..Window::default()
            }
            .void(),
        );
    }
    assert_eq!(law.verdict(), Verdict::Unknown(Reason::Void));
}
