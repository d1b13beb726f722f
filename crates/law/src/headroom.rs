//! How much CPU side work may use so that the asked idle stays.

use std::mem::MaybeUninit;

use crate::ffi;

pub use ffi::{
    tg_headroom_config as HeadroomConfig, tg_headroom_decision as HeadroomDecision,
    tg_reason as Reason,
};

/// What is asked of one domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadroomTerms {
    /// Idle to keep, of the domain.
    pub headroom_ppm: u32,
    /// What side work gets even when main takes all, of the domain.
    pub tolerance_ppm: u32,
}

impl HeadroomConfig {
    /// For exact sensing in windows of about 5 ms.
    pub const FAST: Self = Self {
        mean_min_us: 100_000,
        mean_max_us: 1_000_000,
        mean_error_ppm: 10_000,
        lead_us: 250_000,
        warm_us: 100_000,
        trim_us: 2_000_000,
        trim_max_ppm: 50_000,
        raise_ppm_per_s: 3_000_000,
        fine_min_ppm: 30_000,
        fine_max_ppm: 150_000,
        coarse_ppm: 350_000,
        alarm: 12,
        fine_threshold_us: 2_000,
        coarse_min_us: 2_900,
        coarse_max_us: 4_500,
        proof_us: 25_000,
        doubt_us: 500_000,
        noise_block_us: 20_000,
        fall_us: 50_000,
        calm_us: 500_000,
        dt_max_us: 1_000_000,
        contend_ppm: 0,
        displaced: 0,
    };
    /// For a scheduler that looks for itself, each millisecond, and acts at no cost: a false alarm
    /// is cheap there, and what is given needs no lead but the mean's own.
    pub const KERNEL: Self = Self {
        lead_us: 20_000,
        raise_ppm_per_s: 5_000_000,
        fine_threshold_us: 1_000,
        coarse_min_us: 300,
        coarse_max_us: 4_500,
        proof_us: 10_000,
        doubt_us: 300_000,
        fall_us: 20_000,
        noise_block_us: 10_000,
        displaced: 1,
        ..Self::FAST
    };
    /// [`Self::KERNEL`] for a domain of so many CPUs. Its thresholds are CPU time per CPU; on few
    /// CPUs one request of one task would be a step of the whole domain (4 ms of each 10 on one
    /// CPU: an alarm each 10 ms, and side work had 1 % where 30 % were free). So a step is at least
    /// 4.5 ms of CPU time, as on 15 CPUs.
    pub fn kernel(cpus: u32) -> Self {
        let least_us = 4_500 / cpus.max(1);
        Self {
            fine_threshold_us: Self::KERNEL.fine_threshold_us.max(least_us),
            coarse_min_us: Self::KERNEL.coarse_min_us.max(least_us),
            ..Self::KERNEL
        }
    }
    /// For tick-granular usage in windows of about 50 ms.
    pub const SLOW: Self = Self {
        warm_us: 200_000,
        coarse_max_us: 8_000,
        proof_us: 90_000,
        doubt_us: 600_000,
        ..Self::FAST
    };
}

impl HeadroomConfig {
    /// The tuning for a sensor's window: [`Self::KERNEL`] below 2.5 ms, [`Self::FAST`] below 20 ms,
    /// [`Self::SLOW`] from there.
    pub fn for_window_ns(window_ns: u64) -> Self {
        if window_ns < 2_500_000 {
            Self::KERNEL
        } else if window_ns < 20_000_000 {
            Self::FAST
        } else {
            Self::SLOW
        }
    }
}

impl Default for HeadroomConfig {
    fn default() -> Self {
        Self::FAST
    }
}

/// What a sensor saw over one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadroomSample {
    /// Wall time of the window.
    pub dt_ns: u64,
    /// CPU time there was: online CPUs times the window, less steal.
    pub capacity_ns: u64,
    /// CPU time used by anybody.
    pub busy_ns: u64,
    /// CPU time used by side work.
    pub side_ns: u64,
    /// How far off `busy_ns` or `side_ns` may be per CPU (0 when exact, a tick for group usage).
    pub granularity_ns: u64,
    /// Whether the sensor vouches for it (no reset, no hotplug, no clock jump inside).
    pub valid: bool,
}

#[expect(
    clippy::derivable_impls,
    reason = "bindgen generates the enum and marks no variant as its default"
)]
impl Default for Reason {
    fn default() -> Self {
        Self::Warmup
    }
}

impl Reason {
    /// By its number in law/headroom.h; the BPF scheduler reports that.
    pub fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Warmup,
            1 => Self::Ramp,
            2 => Self::Track,
            3 => Self::Cut,
            4 => Self::Floor,
            6 => Self::Restore,
            7 => Self::Skip,
            _ => Self::Stale,
        }
    }

    /// Whether the sample was not usable.
    pub fn is_unusable(self) -> bool {
        matches!(self, Self::Skip | Self::Stale)
    }

    /// One lower-case word, for status and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warmup => "warmup",
            Self::Ramp => "ramp",
            Self::Track => "track",
            Self::Cut => "cut",
            Self::Floor => "floor",
            Self::Stale => "stale",
            Self::Restore => "restore",
            Self::Skip => "skip",
        }
    }
}

impl HeadroomDecision {
    /// The decision as one of several groups sees it: its share of the allowance, its own floor.
    /// Take the share from [`crate::share()`].
    pub fn for_group(&self, allowance_ucpu: u64, floor_ucpu: u64) -> Self {
        Self {
            allowance_ucpu,
            floor_ucpu,
            ..*self
        }
    }
}

/// The headroom law over one domain. Step it once per window.
#[derive(Clone)]
pub struct Headroom {
    raw: ffi::tg_headroom,
}

impl Headroom {
    /// A law without history: its first decisions are the tolerance.
    pub fn new(cfg: HeadroomConfig, terms: HeadroomTerms) -> Self {
        let mut raw = MaybeUninit::zeroed();
        // SAFETY: the pointers are valid for the call, and zeros are a value of the struct.
        let raw = unsafe {
            ffi::tg_headroom_init(
                raw.as_mut_ptr(),
                &cfg,
                terms.headroom_ppm,
                terms.tolerance_ppm,
            );
            raw.assume_init()
        };
        Self { raw }
    }

    /// Changes what is asked; what was learnt about main stays. Call it on changes only: the trim
    /// stands still for a while after each call.
    pub fn set_terms(&mut self, terms: HeadroomTerms) {
        // SAFETY: as in `new`.
        unsafe {
            ffi::tg_headroom_terms(&mut self.raw, terms.headroom_ppm, terms.tolerance_ppm);
        }
    }

    /// Changes how much side work is taken to slow main; what was learnt stays.
    pub fn set_contention(&mut self, contend_ppm: u32) {
        // SAFETY: as in `new`.
        unsafe { ffi::tg_headroom_contend(&mut self.raw, contend_ppm) };
    }

    /// One window in, one decision out. Never panics, whatever the sample holds.
    pub fn step(&mut self, sample: &HeadroomSample) -> HeadroomDecision {
        let raw_sample = ffi::tg_headroom_sample {
            dt_ns: sample.dt_ns,
            capacity_ns: sample.capacity_ns,
            busy_ns: sample.busy_ns,
            side_ns: sample.side_ns,
            granularity_ns: sample.granularity_ns,
            valid: u32::from(sample.valid),
            pad: 0,
        };
        let mut out = HeadroomDecision::default();
        // SAFETY: as in `new`.
        unsafe { ffi::tg_headroom_step(&mut self.raw, &raw_sample, &mut out) };
        out
    }
}
