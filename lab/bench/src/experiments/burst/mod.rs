//! A quota with burst under a load that exceeds it now and then: no limit, the quota alone, with the kernel's burst, and with
//! a burst that follows the load. Every arm meets the same arrivals.

pub mod host;
mod report;
pub mod sim;

/// How the service is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Not at all.
    None,
    /// A quota, nothing carried over.
    Quota,
    /// ... with the burst series' burst: four sevenths of the quota.
    Burst,
    /// A quota that koordlet's law raises.
    Koordlet,
    /// `burst = auto`.
    Auto,
}

/// A limit, and the scheduler that keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm {
    /// In JSON and CSV.
    pub key: &'static str,
    /// In tables.
    pub label: &'static str,
    /// The limit.
    pub limit: Limit,
    /// Whether the ext engine runs it.
    pub ext: bool,
}

const fn arm(key: &'static str, label: &'static str, limit: Limit, ext: bool) -> Arm {
    Arm {
        key,
        label,
        limit,
        ext,
    }
}

/// On a real kernel.
pub const HOST: [Arm; 8] = [
    arm("no_limit", "no limit", Limit::None, false),
    arm("quota", "quota, no burst", Limit::Quota, false),
    arm("burst_fixed", "quota, burst 4/7", Limit::Burst, false),
    arm("koordlet", "koordlet's law", Limit::Koordlet, false),
    arm("tidegate_auto", "Tidegate, burst auto", Limit::Auto, false),
    arm("ext_no_limit", "ext: no limit", Limit::None, true),
    arm("ext_quota", "ext: quota, no burst", Limit::Quota, true),
    arm(
        "ext_burst_fixed",
        "ext: quota, burst 4/7",
        Limit::Burst,
        true,
    ),
];

/// Simulated.
pub const SIM: [Arm; 4] = [
    arm("no_limit", "no limit", Limit::None, false),
    arm("burst_0", "burst 0 ms", Limit::Quota, false),
    arm("burst_400", "burst 400 ms", Limit::Burst, false),
    arm("auto", "burst auto", Limit::Auto, false),
];

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The arm.
    pub arm: Arm,
    /// From 0.
    pub round: u32,
}
