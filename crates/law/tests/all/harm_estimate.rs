//! The promises of harm that is not found by the end of learning: the higher level is held if harm would have been found.

use crate::harm::{NONE, service};
use crate::support::queue::{Bed, Effect, Main};
use tidegate_law::harm::{Arm, Config, Harm, Reason, Verdict};

const UNKNOWN: Verdict = Verdict::Unknown(Reason::TooLittle);

/// How learning ended within 120 s.
fn ended(rate: f64, effect: Effect) -> Vec<(Verdict, Arm)> {
    let config = Config {
        learn_us: 120_000_000,
        ..Config::default()
    };
    let main = Main {
        rate,
        ..Main::default()
    };
    let ended = (0..40_u64).map(|seed| {
        let mut bed = Bed::new(main, Harm::new(config, seed), seed + 50);
        bed.until(125, effect, |law| !law.learning()).unwrap();
        (bed.law.verdict(), bed.law.held())
    });
    ended.collect()
}

#[test]
fn where_no_harm_is_found_that_would_have_been_the_higher_level_is_held() {
    let count =
        |ended: &[(Verdict, Arm)], is: (Verdict, Arm)| ended.iter().filter(|e| **e == is).count();
    // 150 a second: a standard error of 2.6 %.
    let none = ended(150.0, NONE);
    assert!(count(&none, (UNKNOWN, Arm::High)) >= 20, "{none:?}");
    assert!(count(&none, (UNKNOWN, Arm::Low)) <= 1, "{none:?}");
    let held = |ended: &[(Verdict, Arm)]| ended.iter().filter(|(_, at)| *at == Arm::High).count();
    let harmed = [ended(150.0, service(0.2)), ended(150.0, service(0.3))];
    assert!(held(&harmed[0]) <= 4 && held(&harmed[1]) == 0, "{harmed:?}");
    // 20 a second: of 7 %.
    let sparse = ended(20.0, NONE);
    assert!(count(&sparse, (UNKNOWN, Arm::Low)) >= 35, "{sparse:?}");
}

#[test]
fn what_is_held_unproven_is_watched_and_measured_again_after_an_hour() {
    let config = Config {
        learn_us: 120_000_000,
        ..Config::default()
    };
    let main = Main {
        rate: 250.0,
        ..Main::default()
    };
    let unproven = |seed: u64| {
        let mut bed = Bed::new(main, Harm::new(config, seed), seed + 50);
        bed.until(125, NONE, |law| !law.learning()).unwrap();
        let is = (bed.law.verdict(), bed.law.held()) == (UNKNOWN, Arm::High);
        is.then_some(bed)
    };
    let mut beds = (0..20).filter_map(unproven);
    let mut bed = beds.next().unwrap();
    let again_s = bed.until(4000, NONE, |law| law.learning()).unwrap();
    assert!(again_s <= 3601.0, "{again_s} s");
    let followed = beds.take(8).map(|mut bed| {
        let harm = service(0.8);
        u32::from(bed.until(300, harm, |law| law.learning()).is_some())
    });
    assert!(followed.sum::<u32>() >= 7);
}
