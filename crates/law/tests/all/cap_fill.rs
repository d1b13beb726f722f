//! Filling a bucket: every small case around full, and the longest sleeps, against exact
//! arithmetic; and any input at all.

use proptest::prelude::*;
use tidegate_law::cap::{Cap, Family, Loan, NEVER_NS, RATE_MAX_PPT, Scope, State, Terms};

fn bucket(rate_ppt: u32) -> Cap {
    let mut cap = Cap::default();
    cap.set(&Terms::group(Some(rate_ppt), None, 0), 0);
    cap
}

#[test]
fn around_full_nothing_is_lost_or_made() {
    let mut cases = 0;
    for rate in [1u32, 3, 7, 250, 300, 333, 999, 1_000, 1_500, 64_000] {
        for short_ns in 0..4u32 {
            for carry in (0..1_000u32).step_by(13) {
                for dt in (0..40u64).chain(990..1_010).chain(3_995..4_005) {
                    let mut cap = bucket(rate);
                    let depth = i128::from(cap.hard.depth_ns) * 1000;
                    cap.hard.level_ns = cap.hard.depth_ns as i64 - i64::from(short_ns);
                    cap.hard.carry_ppt = if short_ns == 0 { 0 } else { carry };
                    let before =
                        i128::from(cap.hard.level_ns) * 1000 + i128::from(cap.hard.carry_ppt);
                    cap.charge(0, dt, false, 0);
                    let after =
                        i128::from(cap.hard.level_ns) * 1000 + i128::from(cap.hard.carry_ppt);
                    let due = (before + i128::from(dt) * i128::from(rate)).min(depth);
                    assert_eq!(
                        after, due,
                        "rate {rate}, {short_ns} ns short, carry {carry}, {dt} ns"
                    );
                    cases += 1;
                }
            }
        }
    }
    println!("{cases} fills around full, all of them exact");
}

#[test]
fn the_longest_sleep_fills_and_no_more() {
    let hour = 3_600_000_000_000u64;
    // The last of them, times a rate of 2^10 or 2^20, is 2^64: nothing at all, were it multiplied.
    let sleeps = [hour, 24 * hour, 365 * 24 * hour, u64::MAX, 1 << 54, 1 << 44];
    for rate in [1, 999, 1_000, 1 << 10, 5_000, 1 << 20, RATE_MAX_PPT] {
        for slept in sleeps {
            let mut cap = bucket(rate);
            let awake = cap.state(&mut Family::default(), slept, 0);
            assert_eq!(awake, State::Run);
            assert_eq!(
                cap.hard.level_ns, cap.hard.depth_ns as i64,
                "rate {rate}, {slept} ns"
            );
            assert_eq!(cap.hard.carry_ppt, 0);
        }
    }
}

#[test]
fn the_largest_debt_is_paid_to_the_end() {
    // 2^50 ns at one part in a thousand: 35,000 years, within u64 of the clock.
    let (mut cap, mut family) = (bucket(1), Family::default());
    cap.charge(u64::MAX, 0, false, 0);
    assert_eq!(cap.hard.level_ns, -(1 << 50));
    let ready = cap.ready_at_ns(&family, 1);
    assert_eq!(u128::from(ready), ((1u128 << 50) + 1) * 1_000);
    assert_eq!(cap.state(&mut family, ready - 1, 0), State::Parked);
    assert_eq!(cap.state(&mut family, ready, 0), State::Run);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn any_input_is_survived(
        words in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u32>(), any::<u32>()), 1..50),
    ) {
        let (mut cap, mut family, mut loan) = (Cap::default(), Family::default(), Loan::default());
        for (a, b, c, d) in words {
            cap.set(&Terms::new(Some(c), Some(d), Scope::Task, b), a);
            cap.set(&Terms::group(Some(c), Some(d), b), b);
            cap.charge_run(&mut loan, a, b, c & 1 == 0, d);
            cap.state(&mut family, b.wrapping_add(a), c);
            cap.ready_at_ns(&family, a);
            prop_assert!(matches!(cap.lend(&mut loan, a, d & 1 == 0, a, b), 0..=5_000_000 | NEVER_NS));
            cap.charge_run(&mut loan, a >> 20, b, c & 2 == 0, d);
            if let Some(mut child) = cap.fork(a, c) {
                child.leave(&mut family, b);
            }
            for bucket in [cap.hard, cap.soft] {
                prop_assert!(bucket.level_ns >= -(1 << 50));
                prop_assert!(bucket.level_ns + bucket.lent_ns as i64 <= bucket.depth_ns as i64);
                prop_assert!(bucket.depth_ns < 1 << 37);
            }
        }
    }
}
