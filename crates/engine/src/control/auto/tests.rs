use tidegate_law::{Headroom, HeadroomConfig, HeadroomSample, HeadroomTerms};

mod bed;

use super::*;

use bed::Bed;

fn none(_: u32) -> u64 {
    1_000_000
}

/// Side work costs main 40 % at no headroom, and less the more idle is kept.
fn half_of_the_cores_are_shared(level_ppm: u32) -> u64 {
    1_000_000 + u64::from(400_000_u32.saturating_sub(level_ppm * 2))
}

#[test]
fn without_harm_side_work_has_the_idle_class_alone() {
    let mut bed = Bed::new();
    assert!(!bed.auto.measures(), "nothing is known of main yet");
    bed.run(10, none);
    assert!(bed.auto.measures());
    bed.run(50, none);
    assert_eq!(bed.found(), (0, State::Known));
    assert!(!bed.auto.measures());
    let [ratio, lower, upper] = bed.auto.found().unwrap().ratio_ppm.unwrap();
    assert!(
        lower <= 1_000_000 && upper < 1_050_000 && ratio <= upper,
        "{lower} {upper}"
    );
    bed.low_ns = 0;
    bed.run(600, none);
    assert_eq!(bed.found(), (0, State::Known));
    let low_ppm = bed.low_ns / 600 / 1_000;
    // 1.5 %, and 1.1 to 2.2 % for each time that chance makes it learn again.
    assert!(
        (8_000..40_000).contains(&low_ppm),
        "probes take {low_ppm} ppm"
    );
}

#[test]
fn with_harm_the_least_level_within_the_aim_is_found() {
    let mut bed = Bed::new();
    bed.run(600, half_of_the_cores_are_shared);
    let (level_ppm, state) = bed.found();
    assert_eq!(state, State::Known);
    // 5 % are left at 17.5 %; a step more is a matter of noise.
    assert!((150_000..=250_000).contains(&level_ppm), "{level_ppm}");
}

/// The mean is what it was; of main's turns 2 % wait long, where there is less than 30 % of headroom.
#[test]
fn a_level_at_which_more_turns_wait_long_is_not_fit() {
    let mut bed = Bed::new();
    bed.late = (20, 300_000);
    bed.run(600, none);
    assert_eq!(bed.found(), (300_000, State::Known));
    let found = bed.auto.found().unwrap();
    let tail = found.tail.unwrap();
    assert!(tail.decides && tail.more_ppm[0] < 7_500, "{found:?}");
    // 0.4 CPUs in 500 turns a second, give or take.
    assert!(
        (700_000..900_000).contains(&tail.late_after_ns),
        "{found:?}"
    );
    assert_eq!(bed.auto.late_after_ns(), Some(tail.late_after_ns));
    bed.auto.follow(None, 300_000);
    assert_eq!(bed.auto.late_after_ns(), None, "the sensor is another's");
}

#[test]
fn what_the_highest_level_does_not_avoid_raises_nothing() {
    let mut bed = Bed::new();
    bed.late = (20, 1_000_000);
    bed.run(60, |_| 1_700_000);
    assert_eq!(bed.found(), (0, State::Known));
    // It avoids half: of that, no more than the aim is given up, which is at 47 %.
    let mut bed = Bed::new();
    bed.run(600, |ppm| 1_600_000 - u64::from(ppm) / 2);
    let (level_ppm, state) = bed.found();
    assert_eq!(state, State::Known);
    assert!((400_000..=550_000).contains(&level_ppm), "{level_ppm}");
}

#[test]
fn harm_that_is_not_found_within_two_minutes_raises_nothing() {
    let mut bed = Bed::new();
    // At the aim itself no bound is ever clear of it.
    bed.noise_steps = 10;
    let harms = |ppm: u32| 1_000_000 + 30_000 * u64::from(ppm < 600_000);
    bed.run(100, harms);
    assert_eq!(bed.found(), (0, State::Learning));
    bed.run(30, harms);
    assert_eq!(bed.found(), (0, State::Unproven));
    let [ratio, lower, upper] = bed.auto.found().unwrap().ratio_ppm.unwrap();
    assert!(ratio <= 1_050_000, "{ratio}");
    assert!(lower <= 1_000_000 && upper >= 1_050_000, "{lower} {upper}");
    assert_eq!(bed.auto.known_pct(), Some(0));
}

#[test]
fn where_each_lower_level_harms_the_highest_is_held_and_nothing_is_compared() {
    let mut bed = Bed::new();
    let harms = |ppm: u32| 1_000_000 + 600_000 * u64::from(ppm < 600_000);
    bed.run(300, harms);
    assert_eq!(bed.found(), (600_000, State::Known));
    bed.low_ns = 0;
    bed.run(300, harms);
    assert_eq!(bed.low_ns, 0);
    // A lower one is tried after ten minutes.
    bed.run(900, none);
    assert_eq!(bed.found(), (0, State::Known));
}

/// Too few turns in the first seconds for a bound of what a long wait is.
#[test]
fn waits_count_once_main_has_turns() {
    let mut bed = Bed::new();
    bed.runs = 0;
    bed.run(15, none);
    assert_eq!(bed.auto.late_after_ns(), Some(u64::MAX));
    (bed.runs, bed.late) = (10, (20, 300_000));
    bed.run(600, none);
    assert_eq!(bed.found(), (300_000, State::Known));
}

/// A lower level is tried as side work comes back, and harms.
#[test]
fn a_level_is_still_known_after_a_lower_one_was_tried() {
    let mut bed = Bed::new();
    let harms = |ppm: u32| 1_000_000 + 600_000 * u64::from(ppm < 250_000);
    bed.run(400, harms);
    assert_eq!(bed.found(), (250_000, State::Known));
    assert!(bed.auto.fit_law.is_none(), "of a higher level");
    bed.side = false;
    bed.run(700, harms);
    assert!(bed.auto.fit_law.is_some(), "a lower level is next");
    bed.side = true;
    bed.run(60, harms);
    assert_eq!(bed.found(), (250_000, State::Known));
    let [ratio, ..] = bed.auto.found().unwrap().ratio_ppm.unwrap();
    assert!(ratio < 1_050_000, "the figures are of 25 %: {ratio}");
}

#[test]
fn a_hog_alone_is_never_throttled() {
    for (has_main, main_ppm) in [(true, 2_000), (false, 40_000)] {
        let mut bed = Bed::new();
        (bed.has_main, bed.main_ppm) = (has_main, main_ppm);
        bed.run(600, |_| 2_000_000);
        assert_eq!(bed.found(), (0, State::NoMain));
        assert_eq!(bed.low_ns, 0);
    }
}

#[test]
fn what_is_known_stays_while_main_rests() {
    let mut bed = Bed::new();
    bed.run(900, half_of_the_cores_are_shared);
    // A lower one may be tried just now.
    let level_ppm = bed.auto.search.known_pct() * PPM_PER_PCT;
    bed.main_ppm = 0;
    bed.run(60, half_of_the_cores_are_shared);
    bed.low_ns = 0;
    bed.run(600, half_of_the_cores_are_shared);
    assert_eq!((bed.found(), bed.low_ns), ((level_ppm, State::NoMain), 0));
}

#[test]
fn side_work_that_rests_teaches_nothing() {
    let mut bed = Bed::new();
    bed.side = false;
    bed.run(600, |_| 2_000_000);
    assert_eq!((bed.found(), bed.low_ns), ((0, State::NoSide), 0));
    bed.side = true;
    bed.run(300, |ppm| 1_000_000 + 1_000_000 * u64::from(ppm < 400_000));
    assert_eq!(bed.found(), (400_000, State::Known));
}

#[test]
fn where_waits_are_not_told_the_default_is_in_force_beside_a_main_with_work() {
    let mut bed = Bed::new();
    bed.tells_waits = false;
    bed.run(60, none);
    let (level_ppm, state) = bed.found();
    assert_eq!(level_ppm, 200_000);
    assert!(
        matches!(state, State::Unknown(why) if why.contains("usage files")),
        "{state:?}"
    );
    bed.main_ppm = 0;
    bed.run(60, none);
    assert_eq!((bed.found(), bed.low_ns), ((0, State::NoMain), 0));
}

#[test]
fn what_was_not_written_tells_nothing() {
    let mut bed = Bed::new();
    bed.written = false;
    bed.run(400, |_| 2_000_000);
    assert_eq!(bed.found(), (200_000, State::Unknown("void windows")));
}

#[test]
fn a_change_of_the_harm_is_followed() {
    let mut bed = Bed::new();
    bed.run(60, none);
    bed.run(1800, half_of_the_cores_are_shared);
    let (level_ppm, _) = bed.found();
    assert!(
        (150_000..=300_000).contains(&level_ppm),
        "{:?}",
        bed.found()
    );
}

#[test]
fn each_change_of_the_level_is_a_cut_or_the_end_of_one() {
    let mut auto = Auto::default();
    auto.follow(Some(50_000), 200_000);
    let decided = HeadroomDecision {
        allowance_ucpu: 1_500_000,
        floor_ucpu: 20_000,
        capacity_ucpu: 2_000_000,
        reason: Reason::Ramp,
        ..HeadroomDecision::default()
    };
    let mut said = |is_low: bool, decided: HeadroomDecision| {
        auto.is_low = is_low;
        let decision = auto.hold(decided);
        (decision.allowance_ucpu, decision.reason)
    };
    assert_eq!(said(false, decided), (1_500_000, Reason::Ramp));
    assert_eq!(said(true, decided), (300_000, Reason::Cut));
    assert_eq!(said(true, decided), (300_000, Reason::Ramp));
    let full = HeadroomDecision {
        allowance_ucpu: 1_000_000,
        ..decided
    };
    assert_eq!(said(true, full), (20_000, Reason::Ramp));
    let skipped = HeadroomDecision {
        allowance_ucpu: 20_000,
        reason: Reason::Skip,
        ..decided
    };
    assert_eq!(said(true, skipped), (20_000, Reason::Skip));
    assert_eq!(said(false, decided), (1_500_000, Reason::Restore));
    assert_eq!(said(false, decided), (1_500_000, Reason::Ramp));
}

#[test]
fn a_headroom_that_is_named_for_a_while_does_not_cost_what_was_found() {
    let mut bed = Bed::new();
    bed.run(600, half_of_the_cores_are_shared);
    let found = bed.found();
    bed.auto.follow(None, 300_000);
    assert_eq!((bed.auto.level_ppm(), bed.auto.is_low()), (None, false));
    bed.auto.follow(Some(50_000), 200_000);
    assert_eq!(bed.found(), found);
    bed.auto.follow(Some(40_000), 200_000);
    assert_eq!(bed.found(), (0, State::Learning), "another aim");
}

/// Main of 0.6 CPUs, slowed by side work where CPUs share cores, beside hogs that use all that they are given: the law's decisions
/// over a minute, with the highest headroom kept in every other half second or never.
fn learnt(contend_ppm: u64, switches: bool) -> (HeadroomDecision, HeadroomDecision) {
    let terms = HeadroomTerms {
        headroom_ppm: 200_000,
        tolerance_ppm: 10_000,
    };
    let mut law = Headroom::new(HeadroomConfig::FAST, terms);
    law.set_contention(contend_ppm as u32);
    let mut auto = Auto::default();
    auto.follow(Some(50_000), 200_000);
    let (mut side_ucpu, mut decided) = (20_000, HeadroomDecision::default());
    for step in 0..12_000_u64 {
        let main_ucpu = 600_000 * (1_000_000 + contend_ppm * side_ucpu / 2_000_000) / 1_000_000;
        let ns = |ucpu: u64| ucpu * 5;
        decided = law.step(&HeadroomSample {
            dt_ns: 5_000_000,
            capacity_ns: 10_000_000,
            busy_ns: ns(main_ucpu + side_ucpu),
            side_ns: ns(side_ucpu),
            granularity_ns: 0,
            valid: true,
        });
        auto.is_low = switches && (step / 100) % 2 == 1;
        side_ucpu = auto.hold(decided).allowance_ucpu;
    }
    (decided, auto.hold(decided))
}

/// In LOW the headroom law sees side work that does not use what it may: what it gives in HIGH is the same.
#[test]
fn what_the_headroom_law_learns_while_side_work_is_held_is_right() {
    for contend_ppm in [0, 800_000] {
        let ((still, _), (switched, held)) =
            (learnt(contend_ppm, false), learnt(contend_ppm, true));
        assert_eq!(held.allowance_ucpu, 20_000, "the last half second is LOW");
        let off_ucpu = still.allowance_ucpu.abs_diff(switched.allowance_ucpu);
        // 1 % of the machine.
        assert!(
            off_ucpu < 20_000,
            "contention {contend_ppm}: {still:?} {switched:?}"
        );
        assert_eq!(
            switched.alarms, still.alarms,
            "no step of main: {contend_ppm}"
        );
    }
}

/// Main takes 45 % of the machine: 60 % of headroom leave side work nothing but its tolerance, where nothing can be compared.
#[test]
fn a_level_that_leaves_side_work_no_room_is_not_held() {
    let mut bed = Bed::new();
    (bed.main_ucpu, bed.main_ppm) = (Some(900_000), 900_000);
    // Harmful up to 45 %.
    bed.run(900, |level_ppm| {
        if level_ppm > 450_000 {
            1_000_000
        } else {
            1_600_000
        }
    });
    let (level_ppm, state) = bed.found();
    assert_eq!((level_ppm, state), (500_000, State::Known));
}

#[test]
fn a_main_that_fills_the_machine_ends_no_search() {
    let mut bed = Bed::new();
    (bed.main_ucpu, bed.main_ppm) = (Some(1_980_000), 1_980_000);
    bed.run(30, none);
    assert_eq!(bed.found(), (0, State::NoRoom), "nothing was measured");
    (bed.main_ucpu, bed.main_ppm) = (Some(400_000), 400_000);
    bed.run(500, half_of_the_cores_are_shared);
    let (level_ppm, state) = bed.found();
    assert_eq!(state, State::Known);
    assert!((150_000..=300_000).contains(&level_ppm), "{level_ppm}");
}

/// The other end of a pipe: main has as much to do as side work does.
#[test]
fn work_that_side_work_brings_is_no_harm() {
    let mut bed = Bed::new();
    (bed.has_main, bed.main_ppm, bed.brings) = (false, 200_000, 1);
    bed.main_ucpu = Some(500_000);
    bed.run(60, none);
    let (level_ppm, state) = bed.found();
    assert!(
        matches!(state, State::Unknown(why) if why.contains("seems to cause it")),
        "{state:?}"
    );
    assert_eq!(level_ppm, 200_000, "the default");
}
