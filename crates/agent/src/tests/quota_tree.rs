//! Quotas below quotas on v1: what was lifted is still known for ours.

use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_engine::ledger::Fallback;

use super::{Bed, Kind, path};

#[test]
fn what_stood_before_comes_back_also_from_lifted() {
    for kind in [Kind::Mixed, Kind::V1] {
        let bed = Bed::new(kind);
        let (groups, mut journal) = bed.without_agent();
        let side = path("/other");
        let inner = side.join("inner").unwrap();
        groups.create(&inner).unwrap();
        let limit = |quota_us| Bandwidth::limit(quota_us, 100_000);
        groups.set_bandwidth(&inner, None, limit(50_000)).unwrap();
        let free = Bandwidth::unlimited();
        journal
            .record_limit(&side, "side", free, Fallback::Restore)
            .unwrap();
        for own in [30_000, 20_000] {
            journal
                .set_own(&inner, "job", limit(own), Fallback::Restore)
                .unwrap();
        }
        journal.write_quota(&side, &free, &limit(2_000)).unwrap();
        assert_eq!(groups.bandwidth(&inner).unwrap().quota_us, None);
        // The agent dies; the next to open the journal knows both for ours.
        drop(journal);
        let (groups, mut journal) = bed.without_agent();
        assert_eq!(journal.restore_lines(|_| true), [""; 0]);
        assert_eq!(groups.bandwidth(&inner).unwrap(), limit(50_000));
        assert_eq!(groups.bandwidth(&side).unwrap(), free);
    }
}
