//! Water-filling: one allowance over several targets.

/// The most targets one allowance is shared over.
pub const SHARE_MAX: usize = 1024;
/// The largest weight; weights are clamped to 1..=this.
pub const WEIGHT_MAX: u32 = 10_000;

/// What one target is entitled to and wants.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Relative share while demands compete, 1..=10000.
    pub weight: u64,
    /// What it would use if it could; `u64::MAX` (clamped to the largest domain) for "all it gets".
    pub demand_ucpu: u64,
    /// What it gets in any case.
    pub floor_ucpu: u64,
}

impl Demand {
    /// A target's demand.
    pub fn new(weight: u32, demand_ucpu: u64, floor_ucpu: u64) -> Self {
        Self {
            weight: u64::from(weight),
            demand_ucpu,
            floor_ucpu,
        }
    }
}

unsafe extern "C" {
    fn tg_native_share(allowance_ucpu: u64, demands: *const Demand, n: u32, out: *mut u64);
    #[cfg(test)]
    fn tg_native_share_size() -> u64;
}

/// Shares `allowance_ucpu` over `demands` into `out`.
///
/// Every target gets its floor; the sum is the larger of the allowance and the floors; none gets
/// more than its demand unless all demands are met; those below their demand stand in proportion to
/// their weights. Targets beyond [`SHARE_MAX`], which no caller has, get their floors.
///
/// # Panics
/// If `out` is shorter than `demands`.
pub fn share(allowance_ucpu: u64, demands: &[Demand], out: &mut [u64]) {
    assert!(out.len() >= demands.len(), "one output for each demand");
    let served = demands.len().min(SHARE_MAX);
    // SAFETY: both slices hold at least `served` elements, `Demand` mirrors the C struct
    // (its size is tested), and the callee keeps no pointer.
    unsafe {
        tg_native_share(
            allowance_ucpu,
            demands.as_ptr(),
            u32::try_from(served).unwrap_or(0),
            out.as_mut_ptr(),
        );
    }
    for (given, demand) in out.iter_mut().zip(demands).skip(served) {
        *given = demand.floor_ucpu;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_has_the_size_of_the_original() {
        // SAFETY: takes nothing and returns an integer.
        assert_eq!(
            unsafe { tg_native_share_size() },
            size_of::<Demand>() as u64
        );
    }
}
