//! The C types of `law/headroom_types.h` as Rust sees them, and the functions of native/headroom.c.
//! Sizes are compared with the C compiler's in the tests below.

use super::HeadroomConfig;

#[repr(C)]
pub(crate) struct RawSample {
    pub dt_ns: u64,
    pub capacity_ns: u64,
    pub busy_ns: u64,
    pub side_ns: u64,
    pub granularity_ns: u64,
    pub valid: u32,
    pub pad: u32,
}

#[repr(C)]
#[derive(Default)]
pub(crate) struct RawDecision {
    pub allowance_ucpu: u64,
    pub floor_ucpu: u64,
    pub capacity_ucpu: u64,
    pub asked_ucpu: u64,
    pub main_est_ucpu: u64,
    pub main_now_ucpu: u64,
    pub side_ucpu: u64,
    pub idle_ucpu: u64,
    pub noise_ucpu: u64,
    pub trim_ucpu: i64,
    pub reason: u32,
    pub alarms: u32,
}

#[repr(C)]
#[derive(Clone, Default)]
pub(crate) struct RawDetector {
    pub sum_ns: u64,
    pub age_us: u64,
}

#[repr(C)]
#[derive(Clone, Default)]
pub(crate) struct RawProbation {
    pub open_us: u64,
    pub block_us: u64,
    pub used_ns: u64,
    pub main_ncpu: u64,
    pub beside_ncpu: u64,
    pub noise_us: u64,
    pub out_ucpu: u64,
    pub margin_ucpu: u64,
}

#[repr(C)]
#[derive(Clone, Default)]
pub(crate) struct RawBlock {
    pub used_ns: u64,
    pub expected_ns: u64,
    pub age_us: u64,
    pub last_ucpu: u64,
    pub filled: u64,
}

#[repr(C)]
#[derive(Clone, Default)]
pub(crate) struct RawHeadroom {
    pub cfg: HeadroomConfig,
    pub headroom_ppm: u32,
    pub tolerance_ppm: u32,
    pub history_us: u64,
    pub unseen_us: u64,
    pub ahead_ns: u64,
    pub mean_age_us: u64,
    pub capacity_ncpu: u64,
    pub main_ncpu: u64,
    pub side_ncpu: u64,
    pub idle_ncpu: u64,
    pub given_ncpu: u64,
    pub noise_us: u64,
    pub noise_main_ncpu: u64,
    pub trim_ncpu: i64,
    pub out_ucpu: u64,
    pub fine: RawDetector,
    pub coarse: RawDetector,
    pub fall: RawDetector,
    pub probation: RawProbation,
    pub block: RawBlock,
    pub calm_us: u64,
    pub steady_us: u64,
    pub trail_ncpu: u64,
    pub tail_ncpu: u64,
    pub beside_ncpu: u64,
    pub side_last_ucpu: u64,
    pub alarms: u32,
    pub pad: u32,
}

unsafe extern "C" {
    pub(crate) fn tg_native_headroom_init(
        h: *mut RawHeadroom,
        cfg: *const HeadroomConfig,
        headroom_ppm: u32,
        tolerance_ppm: u32,
    );
    pub(crate) fn tg_native_headroom_terms(
        h: *mut RawHeadroom,
        headroom_ppm: u32,
        tolerance_ppm: u32,
    );
    pub(crate) fn tg_native_headroom_contend(h: *mut RawHeadroom, contend_ppm: u32);
    pub(crate) fn tg_native_headroom_step(
        h: *mut RawHeadroom,
        s: *const RawSample,
        d: *mut RawDecision,
    );
    #[cfg(test)]
    fn tg_native_headroom_size(which: u32) -> u64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_have_the_sizes_of_the_originals() {
        let ours = [
            size_of::<HeadroomConfig>(),
            size_of::<RawSample>(),
            size_of::<RawDecision>(),
            size_of::<RawHeadroom>(),
        ];
        for (which, size) in (0u32..).zip(ours) {
            // SAFETY: takes and returns integers only.
            assert_eq!(
                unsafe { tg_native_headroom_size(which) },
                size as u64,
                "{which}"
            );
        }
    }
}
