//! From a rate to the quota and period that give it.

use tidegate_cgroup::bandwidth::{Bandwidth, QUOTA_MIN_US};

/// The limit without burst that comes nearest to `rate_ucpu` from below.
///
/// The period is `period_us` where the quota is at least 1 ms in it; for smaller rates the quota
/// is 1 ms and the period stretches, up to `period_max_us` (smaller rates than 1 ms in that get
/// 1 ms in that: the kernel has nothing less). Off by at most 1 µs in the period, which is 0.01 %
/// of a CPU at 10 ms.
pub fn bandwidth_for(rate_ucpu: u64, period_us: u64, period_max_us: u64) -> Bandwidth {
    let quota_us = rate_ucpu.saturating_mul(period_us) / 1_000_000;
    if quota_us >= QUOTA_MIN_US {
        return Bandwidth::limit(quota_us, period_us);
    }
    // 1 ms at `rate_ucpu` lasts 10^9 / rate_ucpu µs; rounded up, so that it gives no more.
    let stretched_us = (QUOTA_MIN_US * 1_000_000).div_ceil(rate_ucpu.max(1));
    Bandwidth::limit(QUOTA_MIN_US, stretched_us.clamp(period_us, period_max_us))
}
