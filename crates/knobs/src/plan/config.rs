//! How patient a planner is, and how long its periods are.

/// Tuning of a planner; `law/headroom.md` gives the reason for each default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanConfig {
    /// The kernel's tick (1/HZ): how late enforcement is after a write.
    pub tick_ns: u64,
    /// Period of quotas large enough for it.
    pub period_us: u64,
    /// Period where main rests.
    pub rest_period_us: u64,
    /// Longest period, near the floor.
    pub period_max_us: u64,
    /// Least time between two writes, cuts included.
    pub rewrite_min_ns: u64,
    /// Least time from any write to a lowering that is not a cut.
    pub lower_gap_ns: u64,
    /// Least time from any write to a raise.
    pub raise_gap_ns: u64,
    /// A change smaller than this is not worth a write, least and most (noise decides); of the
    /// domain.
    pub deadband_min_ppm: u32,
    /// See [`PlanConfig::deadband_min_ppm`].
    pub deadband_max_ppm: u32,
    /// A drop of this size does not wait for the gap: right after a cut, as its correction, and once it has lasted for 50 ms;
    /// of the domain.
    pub correct_ppm: u32,
    /// A change of this size may use up a second's writes, and a drop of it is a cut; of the domain.
    pub large_ppm: u32,
    /// Writes in any second, above which only cuts and their taking back pass.
    pub writes_per_s_max: u32,
}

impl Default for PlanConfig {
    fn default() -> Self {
        Self {
            tick_ns: 4_000_000,
            period_us: 10_000,
            rest_period_us: 50_000,
            period_max_us: 100_000,
            rewrite_min_ns: 10_000_000,
            lower_gap_ns: 100_000_000,
            raise_gap_ns: 250_000_000,
            deadband_min_ppm: 8_000,
            deadband_max_ppm: 15_000,
            correct_ppm: 30_000,
            large_ppm: 100_000,
            writes_per_s_max: 5,
        }
    }
}
