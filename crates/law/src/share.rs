//! Water-filling: one allowance over several targets.

use crate::ffi;

pub use ffi::{TG_WEIGHT_MAX as WEIGHT_MAX, tg_demand as Demand};

/// The most targets one allowance is shared over.
pub const SHARE_MAX: usize = ffi::TG_SHARE_MAX as usize;

impl Demand {
    pub fn new(weight: u32, demand_ucpu: u64, floor_ucpu: u64) -> Self {
        Self {
            weight: u64::from(weight),
            demand_ucpu,
            floor_ucpu,
        }
    }
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
    // SAFETY: both slices hold at least `served` elements, and the callee keeps no pointer.
    unsafe {
        ffi::tg_share(
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
