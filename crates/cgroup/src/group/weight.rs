//! Weights on v2's scale and v1's shares, converted as the kernel itself does
//! (`include/linux/sched.h`, `sched_weight_from_cgroup`): 100 is 1024 shares, linear, rounded to
//! the nearest.

pub const WEIGHT_MIN: u32 = 1;
pub const WEIGHT_MAX: u32 = 10_000;
pub const WEIGHT_DEFAULT: u32 = 100;
pub const SHARES_DEFAULT: u64 = 1_024;
/// v1's shares that the kernel shows while `cpu.idle` is set (`WEIGHT_IDLEPRIO`).
pub const IDLE_SHARES: u64 = 3;
/// v1's least shares (`MIN_SHARES`); smaller numbers are taken as this.
pub(crate) const SHARES_MIN: u64 = 2;
/// v1's greatest shares (`MAX_SHARES`, 1 << 18); greater numbers are taken as this.
pub(crate) const SHARES_MAX: u64 = 262_144;

pub fn shares_from_weight(weight: u32) -> u64 {
    let weight = u64::from(weight.clamp(WEIGHT_MIN, WEIGHT_MAX));
    // At most 10000 * 1024 + 50: no overflow, and at most 102400, below SHARES_MAX.
    ((weight * SHARES_DEFAULT + 50) / 100).clamp(SHARES_MIN, SHARES_MAX)
}

pub fn weight_from_shares(shares: u64) -> u32 {
    let shares = shares.min(SHARES_MAX);
    let weight = (shares * 100 + SHARES_DEFAULT / 2) / SHARES_DEFAULT;
    // At most 25600 before the clamp.
    u32::try_from(weight)
        .unwrap_or(WEIGHT_MAX)
        .clamp(WEIGHT_MIN, WEIGHT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_weight_survives_the_way_through_shares() {
        for weight in WEIGHT_MIN..=WEIGHT_MAX {
            assert_eq!(weight_from_shares(shares_from_weight(weight)), weight);
        }
        assert_eq!(shares_from_weight(WEIGHT_DEFAULT), SHARES_DEFAULT);
        assert_eq!(weight_from_shares(u64::MAX), WEIGHT_MAX);
        assert_eq!(weight_from_shares(0), WEIGHT_MIN);
    }
}
