//! CPUs for side work: the bounds of its credit, and what an obedient side work gets in the long
//! run.

use proptest::prelude::*;
use tidegate_law::HeadroomDecision;
use tidegate_law::side_cpus::{Credit, Window};

const MS: u64 = 1_000_000;
const CPU: u64 = 1_000_000;

fn decision(allowance_ucpu: u64, floor_ucpu: u64, cpus: u32) -> HeadroomDecision {
    HeadroomDecision {
        allowance_ucpu,
        floor_ucpu,
        capacity_ucpu: u64::from(cpus) * CPU,
        ..HeadroomDecision::default()
    }
}

fn window(decision: &HeadroomDecision, dt_ns: u64, side_ns: u64, online: u32) -> Window {
    Window {
        before_ucpu: decision.allowance_ucpu,
        dt_ns,
        side_ns,
        members: 1,
        online,
    }
}

proptest! {
    #[test]
    fn cpus_and_credit_keep_their_bounds(
        online in 1u32..=8192,
        steps in prop::collection::vec(
            (0u64..=1_000_000, 0u64..=100_000, 0u64..=8192 * CPU, 0u64..20_000_000_000, 0u64..=100, 0u64..10_000),
            1..50,
        ),
    ) {
        let mut credit = Credit::default();
        for (allowance_ppm, floor_ppm, before_ucpu, dt_ns, used_percent, members) in steps {
            let of = |ppm: u64| u64::from(online) * ppm;
            let decision = decision(of(allowance_ppm), of(floor_ppm), online);
            let side_ns = dt_ns / 100 * used_percent * u64::from(online);
            credit.step(&decision, &Window { before_ucpu, dt_ns, side_ns, members, online });
            let watchdog_ucpu = members * 66;
            let allowed = decision.allowance_ucpu.max(decision.floor_ucpu).max(watchdog_ucpu);
            let whole = u32::try_from(allowed / CPU).unwrap();
            prop_assert!(credit.cpus() <= online);
            prop_assert!(credit.cpus() <= whole + (whole / 4).max(1) + 1);
            prop_assert!(credit.cpus() + 1 >= whole.min(online), "one less for a debt, no more");
            // 10 ms of the allowance.
            let most_ns = (allowed * 10).max(MS + allowed);
            prop_assert!(credit.credit_ns().unsigned_abs() <= most_ns);
        }
    }

    /// Side work that takes each CPU it may for each step gets what is allowed, and no more than
    /// that and its credit.
    #[test]
    fn the_fraction_is_kept_in_time(online in 1u32..=64, allowance_ppm in 1_000u64..=1_000_000) {
        let decision = decision(u64::from(online) * allowance_ppm, 0, online);
        let off_ns = side_work_had_ns(&decision, online).abs_diff(decision.allowance_ucpu * 5_000);
        prop_assert!(off_ns <= 3 * MS * u64::from(online).max(4), "{off_ns} ns of {} us", decision.allowance_ucpu * 5);
    }
}

/// CPU time in 5,000 steps of a millisecond, of side work that takes each CPU it may.
fn side_work_had_ns(decision: &HeadroomDecision, online: u32) -> u64 {
    let (mut credit, mut side_ns, mut sum_ns) = (Credit::default(), 0, 0);
    for _ in 0..5_000 {
        credit.step(decision, &window(decision, MS, side_ns, online));
        side_ns = u64::from(credit.cpus()) * MS;
        sum_ns += side_ns;
    }
    sum_ns
}

/// A credit that was cut at the step that opens a CPU lost up to 9 % of such an allowance.
#[test]
fn less_than_a_tenth_of_a_cpu_is_kept_too() {
    for allowance_ucpu in [99_000, 91_000, 79_201, 52_000] {
        let had_ns = side_work_had_ns(&decision(allowance_ucpu, 0, 1), 1);
        let off_ns = had_ns.abs_diff(allowance_ucpu * 5_000);
        assert!(off_ns <= MS, "{had_ns} ns of {allowance_ucpu} ucpu for 5 s");
    }
}

#[test]
fn what_main_leaves_no_room_for_is_owed() {
    let decision = decision(0, CPU / 50, 2);
    let (mut credit, mut steps) = (Credit::default(), 0);
    while !credit.is_owed() {
        credit.step(&decision, &window(&decision, MS, 0, 2));
        steps += 1;
    }
    assert_eq!(steps, 50, "2 % of a CPU is a millisecond in 50");
    credit.step(&decision, &window(&decision, MS, MS, 2));
    assert!(!credit.is_owed());
}

#[test]
fn a_step_of_main_takes_the_credit_away() {
    let rich = decision(CPU / 2, 0, 2);
    let mut credit = Credit::default();
    for _ in 0..20 {
        credit.step(&rich, &window(&rich, MS, 0, 2));
    }
    assert_eq!(
        (credit.credit_ns(), credit.cpus()),
        (5 * MS.cast_signed(), 2)
    );
    let poor = decision(CPU / 10, 0, 2);
    let cut = Window {
        before_ucpu: CPU / 2,
        ..window(&poor, MS, 0, 2)
    };
    credit.step(&poor, &cut);
    assert_eq!((credit.credit_ns(), credit.cpus()), (100_000, 0));
}

/// A timer that comes late, after the machine stood still, finds one rate for all that time.
#[test]
fn a_window_counts_for_a_second_at_most() {
    let decision = decision(CPU / 2, 0, 2);
    let debt = |dt_ns| {
        let mut credit = Credit::default();
        credit.step(&decision, &window(&decision, MS, 600 * MS, 2));
        credit.step(&decision, &window(&decision, dt_ns, 500 * MS, 2));
        credit.credit_ns()
    };
    assert_eq!(debt(1_000 * MS), debt(10_000 * MS));
}

#[test]
fn the_watchdog_is_satisfied_whatever_is_allowed() {
    let decision = decision(0, 0, 2);
    let mut credit = Credit::default();
    let many = Window {
        members: 150,
        ..window(&decision, MS, 0, 2)
    };
    let steps = (1..1_000).find(|_| {
        credit.step(&decision, &many);
        credit.is_owed()
    });
    // 150 tasks of 66 millionths: 9.9 ms in a second.
    assert_eq!(steps, Some(102));
}
