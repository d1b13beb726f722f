//! The promises of harm that bounds leave open at the end of learning: the estimate decides, if it is good enough.

use crate::harm::{NONE, service};
use crate::support::queue::{Bed, Effect, Main};
use tidegate_law::harm::{Arm, Config, Harm};

/// How learning ended within 120 s: the estimate decided, the level that is held.
fn ended(rate: f64, effect: Effect) -> Vec<(bool, Arm)> {
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
        (bed.law.estimated(), bed.law.held())
    });
    ended.collect()
}

#[test]
fn where_the_bounds_leave_it_open_the_estimate_decides_unless_it_errs_by_more_than_the_aim() {
    let count = |ended: &[(bool, Arm)], is: (bool, Arm)| ended.iter().filter(|e| **e == is).count();
    // 150 a second: a standard error of 2.6 %.
    let none = ended(150.0, NONE);
    assert!(count(&none, (true, Arm::High)) >= 20, "{none:?}");
    assert!(count(&none, (true, Arm::Low)) <= 2, "{none:?}");
    let harmed = ended(150.0, service(0.15));
    let held = harmed.iter().filter(|(_, held)| *held == Arm::High).count();
    assert!(held <= 2, "{harmed:?}");
    // 20 a second: of 7 %.
    let sparse = ended(20.0, NONE);
    assert!(count(&sparse, (false, Arm::Low)) >= 35, "{sparse:?}");
}

#[test]
fn what_the_estimate_decided_is_watched_and_measured_again_after_an_hour() {
    let config = Config {
        learn_us: 120_000_000,
        ..Config::default()
    };
    let main = Main {
        rate: 250.0,
        ..Main::default()
    };
    let estimated = |seed: u64| {
        let mut bed = Bed::new(main, Harm::new(config, seed), seed + 50);
        bed.until(125, NONE, |law| !law.learning()).unwrap();
        let is = (bed.law.estimated(), bed.law.held()) == (true, Arm::High);
        is.then_some(bed)
    };
    let mut beds = (0..20).filter_map(estimated);
    let mut bed = beds.next().unwrap();
    let again_s = bed.until(4000, NONE, |law| law.learning()).unwrap();
    assert!(again_s <= 3601.0, "{again_s} s");
    let followed = beds.take(8).map(|mut bed| {
        let harm = service(0.8);
        u32::from(bed.until(300, harm, |law| law.learning()).is_some())
    });
    assert!(followed.sum::<u32>() >= 7);
}
