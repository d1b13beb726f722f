//! Latency hints: each function against its formula in wide numbers.

use proptest::prelude::*;
use tidegate_law::latency::{
    HINT_FIRST, HINT_LAST, SLICE_MAX_NS, SLICE_MIN_NS, before, deadline, hint_of, offset_ns,
    slice_ns,
};

const PERIOD_MAX_NS: u64 = 1 << 40;

fn clamped(hint: i32) -> i32 {
    hint.clamp(HINT_FIRST, HINT_LAST)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn an_offset_is_a_twentieth_of_a_period_a_step(
        hint in prop_oneof![-30..30i32, any::<i32>()],
        period in prop_oneof![0..100u64, 0..100_000_000u64, any::<u64>()],
    ) {
        let exact = i128::from(clamped(hint)) * i128::from(period.min(PERIOD_MAX_NS)) / 20;
        prop_assert_eq!(i128::from(offset_ns(hint, period)), exact, "towards zero");
        prop_assert!(exact.unsigned_abs() <= u128::from(period), "bounded by a period");
    }

    #[test]
    fn deadlines_wrap(v in any::<u64>(), slice in 0..1u64 << 40, hint in -20..20i32, period in 0..1u64 << 40) {
        let exact = i128::from(v) + i128::from(slice) + i128::from(offset_ns(hint, period));
        prop_assert_eq!(i128::from(deadline(v, slice, hint, period)), exact.rem_euclid(1 << 64));
    }

    #[test]
    fn earlier_is_by_the_shorter_way_round(a in any::<u64>(), by in 1..1u64 << 63) {
        prop_assert!(before(a, a.wrapping_add(by)) == (by < 1 << 63));
        prop_assert!(!before(a, a));
        if by < 1 << 62 {
            prop_assert!(!before(a.wrapping_add(by), a));
        }
    }

    #[test]
    fn a_slice_is_a_power_of_five_quarters(hint in -25..25i32, base in prop_oneof![0..200_000_000u64, any::<u64>()]) {
        let ours = slice_ns(hint, base);
        let base = u128::from(base.clamp(SLICE_MIN_NS, SLICE_MAX_NS));
        let steps = clamped(hint).unsigned_abs();
        let (up, down) = if hint > 0 { (5u128, 4u128) } else { (4, 5) };
        // 10^8 * 5^20 < 2^74.
        let exact = base * up.pow(steps) / down.pow(steps);
        let exact = exact.clamp(SLICE_MIN_NS.into(), SLICE_MAX_NS.into());
        let lost = if hint > 0 { 206 } else { 4 };
        prop_assert!(u128::from(ours) <= exact && u128::from(ours) + lost >= exact, "{ours} of {exact}");
    }

    #[test]
    fn a_hints_slice_stands_for_that_hint(hint in -20..20i32, base in SLICE_MIN_NS..=SLICE_MAX_NS) {
        let slice = slice_ns(hint, base);
        let expected = match slice {
            _ if slice == base => 0,
            SLICE_MIN_NS => HINT_FIRST,
            SLICE_MAX_NS => HINT_LAST,
            _ => hint,
        };
        prop_assert_eq!(hint_of(slice, base), expected);
    }

    /// Any program may have written it: no hint's slice is nearer, by ratio.
    #[test]
    fn any_slice_stands_for_the_nearest_hint(slice in SLICE_MIN_NS + 1..SLICE_MAX_NS, base in 300_000..10_000_000u64) {
        let hint = hint_of(slice, base);
        let far = |hint: i32| (slice as f64 / slice_ns(hint, base) as f64).ln().abs();
        for other in HINT_FIRST..=HINT_LAST {
            prop_assert!(far(hint) <= far(other) + 1e-9, "{hint}, and {other} is nearer");
        }
        prop_assert_eq!(hint_of(0, base), HINT_FIRST);
        prop_assert_eq!(hint_of(u64::MAX, base), HINT_LAST);
    }
}
