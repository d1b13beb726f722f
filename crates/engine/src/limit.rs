//! A gate's own limit: what its quota and its hard cap come to as the one quota that its group can
//! have.
//!
//! A group has one quota. Two nested groups could hold a quota and a cap apart, but a running
//! gate's processes cannot be moved into a new group without a race against their forks, and v1 has
//! rules about nested quotas of its own. One quota is enough: the lower of the two rates, over a
//! period so short that the cap's depth holds too, with no more burst than the cap leaves.

use tidegate_cgroup::bandwidth::{Bandwidth, PERIOD_MAX_US, QUOTA_MIN_US};
use tidegate_cgroup::subgroups::Per;
use tidegate_terms::{Burst, CapScope, Terms};

/// A cap is held over the shortest period from here up in which its quota is one that the kernel
/// takes.
const CAP_PERIOD_MIN_US: u64 = 10_000;

/// A group that is not throttled at its period's end (near a whole CPU, or where its tasks come and
/// go on several CPUs) goes on with what its CPUs took from the pool before, and what is then left
/// in the pool is dropped, as more than one quota. From here up (1 ms in the shorter period) a
/// fifth of the cap's depth is burst, which keeps it, and the period as much shorter. A hog at 900
/// ‰ came to 892 to 894 (900.2 with burst; 850 with the shorter period alone), forks at 500 ‰ on
/// two CPUs to 493 (497).
const BURST_FROM_PPT: u64 = 125;
/// The period there; the rest of [`CAP_PERIOD_MIN_US`] is burst.
const BURST_PERIOD_US: u64 = 8_000;

/// The quota that is `ppt` thousandths of a CPU: 1 ms or more, in as short a period as that allows.
pub fn hard_cap(ppt: u32) -> Bandwidth {
    let ppt = u64::from(ppt.max(1));
    if ppt >= BURST_FROM_PPT {
        return Bandwidth {
            burst_us: (CAP_PERIOD_MIN_US - BURST_PERIOD_US) * ppt / 1_000,
            ..Bandwidth::limit(BURST_PERIOD_US * ppt / 1_000, BURST_PERIOD_US)
        };
    }
    // 1 ms at ppt thousandths lasts 1000 ms / ppt.
    let period_us = (QUOTA_MIN_US * 1_000)
        .div_ceil(ppt)
        .clamp(CAP_PERIOD_MIN_US, PERIOD_MAX_US);
    Bandwidth::limit((period_us * ppt / 1_000).max(QUOTA_MIN_US), period_us)
}

/// The limit that a gate's own terms ask for: its quota with period and burst, and a hard cap that
/// counts for all of it. `burst_room_us` is what the limits of the groups above leave to
/// `burst = max`.
pub fn of_terms(terms: &Terms, burst_room_us: u64) -> Option<Bandwidth> {
    let burst_us = match terms.burst.value {
        Burst::Of(span) => span.us(),
        Burst::Max => burst_room_us,
    };
    with_burst(terms, burst_us)
}

/// The same with this burst, as far as quota and cap leave it.
pub fn with_burst(terms: &Terms, burst_us: u64) -> Option<Bandwidth> {
    let quota = terms.quota_us().map(|quota_us| Bandwidth {
        quota_us: Some(quota_us),
        period_us: terms.period.value.us(),
        burst_us: burst_us.min(quota_us),
    });
    own_limit(quota, terms.hard_for_all_ppt())
}

/// The hard and the soft cap that count for each process or task alone, where there is either.
pub fn caps_for_each(terms: &Terms) -> Option<(Per, Option<u32>, Option<u32>)> {
    let per = match terms.cap_scope.value {
        CapScope::Group => return None,
        CapScope::Process => Per::Process,
        CapScope::Task => Per::Task,
    };
    // A task can use no more than one CPU.
    let binds = |ppt: &u32| per == Per::Process || *ppt < 1_000;
    let hard = terms.cap_hard.value.ppt().filter(binds);
    let soft = terms.soft_ppt().filter(|ppt| *ppt > 0 && binds(ppt));
    (hard.is_some() || soft.is_some()).then_some((per, hard, soft))
}

/// The one limit that holds a quota (with its burst) and a hard cap, where either is asked for.
pub fn own_limit(quota: Option<Bandwidth>, cap_hard_ppt: Option<u32>) -> Option<Bandwidth> {
    let quota = quota.filter(|quota| quota.quota_us.is_some());
    match (quota, cap_hard_ppt.map(hard_cap)) {
        (None, cap) => cap,
        (quota, None) => quota,
        (Some(quota), Some(cap)) => Some(both(quota, cap)),
    }
}

/// The lower rate over the shorter period: in any stretch of time it lets through at most what
/// either does.
fn both(quota: Bandwidth, cap: Bandwidth) -> Bandwidth {
    let lower = if cap.rate_no_above(&quota) {
        cap
    } else {
        quota
    };
    let lower_us = lower.quota_us.unwrap_or(u64::MAX);
    let cap_us = at_once_us(&cap);
    let period_us = quota.period_us.min(cap.period_us);
    let in_period = |period_us: u64| {
        let us = u128::from(lower_us) * u128::from(period_us) / u128::from(lower.period_us.max(1));
        u64::try_from(us).unwrap_or(u64::MAX)
    };
    let shaped = match in_period(period_us) {
        us if us >= QUOTA_MIN_US => Bandwidth::limit(us, period_us),
        _ => {
            // 1 ms lasts this long at that rate; rounded up, so that it gives no more.
            let stretched = (u128::from(QUOTA_MIN_US) * u128::from(lower.period_us))
                .div_ceil(u128::from(lower_us.max(1)));
            let stretched_us = u64::try_from(stretched).unwrap_or(u64::MAX);
            Bandwidth::limit(QUOTA_MIN_US, stretched_us.clamp(period_us, PERIOD_MAX_US))
        }
    };
    let own_us = shaped.quota_us.unwrap_or(0);
    // Where the cap has burst for the reason above, so has this: as much as the quota gives at once
    // anyway.
    let burst_us = match cap.burst_us {
        0 => quota.burst_us,
        _ => at_once_us(&quota).saturating_sub(own_us),
    };
    Bandwidth {
        burst_us: burst_us.min(cap_us.saturating_sub(own_us)).min(own_us),
        ..shaped
    }
}

/// The most burst that the limit of a group above leaves to a group with the limit `own`: what the
/// group above has in one of `own`'s periods, with its own burst, less `own`'s quota. A group with
/// more would get its siblings throttled.
pub fn burst_room_us(own: &Bandwidth, above: &Bandwidth) -> u64 {
    let Some(above_us) = above.quota_us else {
        return u64::MAX;
    };
    let in_period =
        u128::from(above_us) * u128::from(own.period_us) / u128::from(above.period_us.max(1));
    u64::try_from(in_period)
        .unwrap_or(u64::MAX)
        .saturating_add(above.burst_us)
        .saturating_sub(own.quota_us.unwrap_or(0))
}

/// A gate's own limit where that is the lower one.
pub fn tighter(limit: Bandwidth, own: Option<Bandwidth>) -> Bandwidth {
    own.filter(|own| own.rate_no_above(&limit)).unwrap_or(limit)
}

/// The most that a limit lets through in no time.
pub fn at_once_us(limit: &Bandwidth) -> u64 {
    limit
        .quota_us
        .unwrap_or(u64::MAX)
        .saturating_add(limit.burst_us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn caps_become_quotas_that_the_kernel_takes() {
        for (ppt, quota_us, period_us) in [
            (1, 1_000, 1_000_000),
            (10, 1_000, 100_000),
            (100, 1_000, 10_000),
            (124, 1_240, 10_000),
        ] {
            let got = hard_cap(ppt);
            assert_eq!(got, Bandwidth::limit(quota_us, period_us), "{ppt}");
        }
        for (ppt, quota_us, burst_us) in [
            (125, 1_000, 250),
            (750, 6_000, 1_500),
            (900, 7_200, 1_800),
            (2_500, 20_000, 5_000),
        ] {
            let wanted = Bandwidth {
                burst_us,
                ..Bandwidth::limit(quota_us, 8_000)
            };
            assert_eq!(hard_cap(ppt), wanted, "{ppt}");
        }
    }

    #[test]
    fn a_quota_within_a_cap_takes_its_shape_and_no_more_burst_than_it_leaves() {
        let quota = Bandwidth {
            burst_us: 40_000,
            ..Bandwidth::limit(40_000, 100_000)
        };
        let both = own_limit(Some(quota), Some(500)).unwrap();
        let expected = Bandwidth {
            burst_us: 1_800,
            ..Bandwidth::limit(3_200, 8_000)
        };
        assert_eq!(both, expected);
        assert_eq!(own_limit(Some(quota), Some(300)), Some(hard_cap(300)));
        assert_eq!(own_limit(Some(quota), None), Some(quota));
        let near = own_limit(Some(Bandwidth::limit(88_000, 100_000)), Some(900)).unwrap();
        let expected = Bandwidth {
            burst_us: 1_960,
            ..Bandwidth::limit(7_040, 8_000)
        };
        assert_eq!(near, expected, "what the pool has left is kept there, too");
        assert_eq!(own_limit(None, Some(300)), Some(hard_cap(300)));
        assert_eq!(own_limit(Some(Bandwidth::unlimited()), None), None);
        // The cap's rate is the lower one, and the quota gives less at once: 11,579 us, where the
        // cap alone gives 11,580.
        let short = own_limit(Some(Bandwidth::limit(11_579, 1_000)), Some(1_158)).unwrap();
        let expected = Bandwidth {
            burst_us: 1_158,
            ..Bandwidth::limit(1_158, 1_000)
        };
        assert_eq!(short, expected);
    }

    #[test]
    fn burst_has_the_room_that_a_group_above_leaves() {
        let own = Bandwidth::limit(40_000, 100_000);
        let above = |quota_us, period_us, burst_us| Bandwidth {
            burst_us,
            ..Bandwidth::limit(quota_us, period_us)
        };
        for (above, room_us) in [
            (Bandwidth::unlimited(), u64::MAX),
            (above(50_000, 100_000, 5_000), 15_000),
            (above(5_000, 10_000, 5_000), 15_000),
            (above(30_000, 100_000, 0), 0),
            (above(u64::MAX, 1_000, u64::MAX), u64::MAX - 40_000),
        ] {
            assert_eq!(burst_room_us(&own, &above), room_us, "{above}");
        }
    }

    fn any_quota() -> impl Strategy<Value = Bandwidth> {
        (1_000u64..2_000_000, 1_000u64..=1_000_000, 0u64..=1_000).prop_map(
            |(quota_us, period_us, burst_pm)| Bandwidth {
                burst_us: quota_us * burst_pm / 1_000,
                ..Bandwidth::limit(quota_us, period_us)
            },
        )
    }

    proptest! {
        #[test]
        fn both_hold_and_the_kernel_takes_it(quota in any_quota(), ppt in 1u32..=8_000) {
            let cap = hard_cap(ppt);
            let own = own_limit(Some(quota), Some(ppt)).unwrap();
            let own_us = own.quota_us.unwrap();
            prop_assert!(own_us >= QUOTA_MIN_US && own.burst_us <= own_us);
            prop_assert!((1_000..=PERIOD_MAX_US).contains(&own.period_us), "{own}");
            prop_assert!(own.rate_no_above(&cap), "{own} above {cap}");
            // Quotas below the kernel's least rate cannot be had, and are not asked for: 1 ms in 1
            // s.
            let least = Bandwidth::limit(QUOTA_MIN_US, PERIOD_MAX_US);
            prop_assert!(own.rate_no_above(&quota) || own == least, "{own} above {quota}");
            // At once no more than the cap gives at once.
            prop_assert!(at_once_us(&own) <= at_once_us(&cap), "{own} in {cap}");
            prop_assert!(at_once_us(&own) <= at_once_us(&quota).max(QUOTA_MIN_US), "{own} in {quota}");
            prop_assert!(at_once_us(&cap) <= (10 * u64::from(ppt)).max(QUOTA_MIN_US), "{cap}: depth");
        }
    }
}
