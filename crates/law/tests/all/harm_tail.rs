//! The promises of harm's tail: the share of main's turns that begin late.

use crate::harm::{NONE, even, steps};
use crate::support::queue::{Bed, Effect, Main, Random};
use tidegate_law::harm::{Config, Harm, Verdict, Window, Wish};

/// One turn in `one_in` waits for three mean service times at HIGH.
fn late(one_in: u32) -> Effect {
    Effect {
        late_one_in: one_in,
        ..NONE
    }
}

#[test]
fn a_tail_that_the_mean_hides_asks_for_headroom() {
    // 2 % of the turns wait: the mean is 3 to 6 % longer, and the aim is 20.
    let cfg = Config {
        aim_ppm: 200_000,
        ..Config::default()
    };
    let raised = |tail_ppm| {
        (0..20_u64)
            .filter(|seed| {
                let law = Harm::new(Config { tail_ppm, ..cfg }, seed + 90);
                let main = Main {
                    rate: 2_000.0,
                    service_us: 200.0,
                    ..Main::default()
                };
                let mut bed = Bed::new(main, law, *seed);
                let raise = |law: &Harm| law.wish() == Wish::Raise;
                let told = bed.until(60, late(50), raise).is_some();
                if told {
                    let [more, lower, upper] = bed.law.tail_ppm();
                    assert!(bed.law.by_tail() && lower > 7_500, "{:?}", bed.law);
                    assert!((10_000..40_000).contains(&more) && more < upper, "{more}");
                }
                told
            })
            .count()
    };
    let told = (raised(7_500), raised(0));
    assert!(told.0 >= 18 && told.1 == 0, "{told:?} of 20");
}

#[test]
fn a_tail_that_appears_is_followed() {
    let main = Main {
        rate: 2_000.0,
        service_us: 200.0,
        ..Main::default()
    };
    let mut followed = 0;
    for seed in 0..10 {
        let cfg = Config {
            aim_ppm: 200_000,
            ..Config::default()
        };
        let mut bed = Bed::new(main, Harm::new(cfg, seed), seed + 30);
        bed.until(120, NONE, |law| law.verdict() == Verdict::None)
            .unwrap();
        let raise = |law: &Harm| law.wish() == Wish::Raise;
        followed += u32::from(bed.until(400, late(25), raise).is_some());
    }
    assert!(followed >= 8, "{followed} of 10");
}

#[test]
fn a_tail_that_cannot_be_told_holds_nothing_up() {
    // So few turns, and so often late ones at either level, that the interval never is within the accepted share.
    let (mut law, mut random) = (Harm::new(Config::default(), 1), Random(3));
    steps(&mut law, 301, |arm, _| {
        let window = even(arm, &mut random, 100);
        let late = if random.next() % 3 == 0 {
            window.turns
        } else {
            0
        };
        Window { late, ..window }
    });
    assert!(law.tail_ppm()[2] > 7_500, "{:?}", law.tail_ppm());
    let fits = law.tail_ppm()[0] <= 7_500;
    assert_eq!(law.verdict() == Verdict::None, fits, "{law:?}");
    assert!(!law.learning());
}
