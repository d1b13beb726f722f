//! v1 takes a limit in three writes, each of which the limits above and below may forbid.

use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::testkit::FakeFs;

use crate::support::{Bed, path};

/// So many thousandths of a CPU, in a period of so many ms.
fn limit((ppt, period_ms): (u64, u64)) -> Bandwidth {
    Bandwidth::limit(period_ms * ppt, period_ms * 1_000)
}

fn any_limit(ppt: Range<u64>) -> impl Strategy<Value = Bandwidth> {
    (ppt, 100_u64..=1_000).prop_map(limit)
}

proptest! {
    /// Whatever a group has and is to have between its parent's limit and its child's.
    #[test]
    fn a_limit_between_those_above_and_below_is_always_reached(
        parent in any_limit(3_000..4_000),
        child in any_limit(10..20),
        states in vec((1_000..3_000_u64, 1_u64..=1_000).prop_map(limit), 2..6),
    ) {
        let bed = Bed::new(FakeFs::mixed());
        for (group, limit) in [("/p", Some(parent)), ("/p/g", None), ("/p/g/c", Some(child))] {
            bed.groups.create(&path(group)).unwrap();
            if let Some(limit) = limit {
                bed.groups.set_bandwidth(&path(group), None, limit).unwrap();
            }
        }
        let group = path("/p/g");
        for to in states.into_iter().chain([Bandwidth::unlimited()]) {
            bed.groups.set_bandwidth(&group, None, to).unwrap();
            let now = bed.groups.bandwidth(&group).unwrap();
            prop_assert_eq!(now.quota_us, to.quota_us);
            prop_assert!(to.quota_us.is_none() || now.period_us == to.period_us);
        }
    }
}
