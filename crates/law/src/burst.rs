//! Adaptive burst: how much unused quota may be carried over (`law/burst.h`, `law/burst.md`).

/// Where no ancestor has a limit.
pub const NO_PARENT: u64 = u64::MAX;

/// Tuning; `law/burst.md` gives the reasons.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Without shortage for so long before it grows.
    pub calm_us: u32,
    /// Shrinking while the machine is short of CPU, of the quota.
    pub shrink_ppm_per_s: u32,
    /// A machine with less idle than this is short of CPU.
    pub short_ppm: u32,
    /// Span of the mean of use over quota.
    pub mean_us: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            calm_us: 1_000_000,
            shrink_ppm_per_s: 1_000_000,
            short_ppm: 50_000,
            mean_us: 10_000_000,
        }
    }
}

/// What was seen in one window.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Wall time of the window, 1 µs to 10 s.
    pub dt_ns: u64,
    /// The group's quota for one period.
    pub quota_ns: u64,
    /// The period, up to 1 s.
    pub period_ns: u64,
    /// The group's CPU time in the window.
    pub used_ns: u64,
    /// The most burst that the parents allow: the least of [`room_ns`] over them, or [`NO_PARENT`].
    pub room_ns: u64,
    /// CPU time there was on the machine.
    pub capacity_ns: u64,
    /// CPU time that was not used.
    pub idle_ns: u64,
    /// Periods of the window in which the group was throttled.
    pub throttled: u32,
    /// 0: the sensor does not vouch for it. Set by [`Self::vouched`].
    pub valid: u32,
}

impl Evidence {
    /// The same evidence, vouched for or not. [`Default`] is not: fill the fields, then call this.
    pub fn vouched(self, valid: bool) -> Self {
        Self {
            valid: u32::from(valid),
            ..self
        }
    }
}

/// The adaptive burst of one group. Step it once a window.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AutoBurst {
    cfg: Config,
    burst_ns: u64,
    age_us: u64,
    use_ppb: u64,
    calm_us: u64,
}

unsafe extern "C" {
    fn tg_native_burst_init(b: *mut AutoBurst, cfg: *const Config);
    fn tg_native_burst_auto_step(b: *mut AutoBurst, e: *const Evidence) -> u64;
    fn tg_native_burst_room_ns(
        quota_ns: u64,
        period_ns: u64,
        parent_quota_ns: u64,
        parent_period_ns: u64,
        parent_burst_ns: u64,
    ) -> u64;
    #[cfg(test)]
    fn tg_native_burst_size(which: u32) -> u64;
}

impl AutoBurst {
    /// Without history: no burst.
    pub fn new(cfg: Config) -> Self {
        let mut burst = Self {
            cfg,
            burst_ns: 0,
            age_us: 0,
            use_ppb: 0,
            calm_us: 0,
        };
        // SAFETY: both pointers are valid for the call, and the types mirror the C structs (sizes are tested).
        unsafe { tg_native_burst_init(&mut burst, &cfg) };
        burst
    }

    /// A burst of `burst_ns` stands (of an agent before this one), without other history.
    pub fn resumed(cfg: Config, burst_ns: u64) -> Self {
        Self {
            burst_ns,
            ..Self::new(cfg)
        }
    }

    /// One window of evidence in, the burst for the next out.
    pub fn step(&mut self, evidence: &Evidence) -> u64 {
        // SAFETY: as in `new`.
        unsafe { tg_native_burst_auto_step(self, evidence) }
    }

    /// What the last step gave.
    pub fn burst_ns(&self) -> u64 {
        self.burst_ns
    }

    /// Mean of use over quota; 1,000,000,000 is all of it.
    pub fn use_ppb(&self) -> u64 {
        self.use_ppb
    }
}

/// The most burst that one limited ancestor leaves to a group.
pub fn room_ns(
    quota_ns: u64,
    period_ns: u64,
    parent_quota_ns: u64,
    parent_period_ns: u64,
    parent_burst_ns: u64,
) -> u64 {
    // SAFETY: takes and returns integers only.
    unsafe {
        tg_native_burst_room_ns(
            quota_ns,
            period_ns,
            parent_quota_ns,
            parent_period_ns,
            parent_burst_ns,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_have_the_sizes_of_the_originals() {
        let ours = [
            size_of::<Config>(),
            size_of::<Evidence>(),
            size_of::<AutoBurst>(),
        ];
        for (which, size) in (0u32..).zip(ours) {
            // SAFETY: takes and returns integers only.
            assert_eq!(
                unsafe { tg_native_burst_size(which) },
                size as u64,
                "{which}"
            );
        }
    }
}
