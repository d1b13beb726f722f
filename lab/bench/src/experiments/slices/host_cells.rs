//! What is run on a real kernel: which kernel, and what has the quota.

use super::{QUOTA_US, Used};
use crate::dist::Latency;
use crate::report::Sample;

/// What a sleeper of fibtest does between two sleeps.
const SLOW_US: u64 = 1;
/// A burst: all CPUs' together are 64 % of a quota for eight of them.
pub const BURST_US: u64 = 4;
/// From one burst, or one moment of work, to the next.
pub const GAP_US: u64 = 10_000;

/// Who schedules, and what becomes of a slice at its period's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Simulated: it is gone.
    Expire,
    /// Simulated: it stays.
    Stay,
    /// The kernel's own, as it is.
    Eevdf,
    /// Ours.
    Ext,
}

impl Kernel {
    /// In the tables' order.
    pub const ALL: [Kernel; 4] = [Kernel::Expire, Kernel::Stay, Kernel::Eevdf, Kernel::Ext];

    /// In tables.
    pub fn label(self) -> &'static str {
        match self {
            Kernel::Expire => "slices that expire (simulated)",
            Kernel::Stay => "slices that stay (simulated)",
            Kernel::Eevdf => "the kernel's own",
            Kernel::Ext => "Tidegate ext",
        }
    }

    /// In JSON and CSV.
    pub fn key(self) -> &'static str {
        match self {
            Kernel::Expire => "expire_simulated",
            Kernel::Stay => "stay_simulated",
            Kernel::Eevdf => "eevdf",
            Kernel::Ext => "ext",
        }
    }
}

/// What runs in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// The published one.
    Fibtest,
    /// Bursts on all CPUs.
    Bursts,
    /// ... without a limit.
    Free,
}

impl Load {
    /// In the tables' order.
    pub const ALL: [Load; 3] = [Load::Fibtest, Load::Bursts, Load::Free];

    /// In JSON and CSV.
    pub fn key(self) -> &'static str {
        match self {
            Load::Fibtest => "fibtest",
            Load::Bursts => "bursts",
            Load::Free => "bursts_without_limit",
        }
    }

    /// Threads that compute without end.
    pub fn busy(self) -> usize {
        usize::from(self == Load::Fibtest)
    }

    /// What each of the others does at a time.
    pub fn work_us(self) -> u64 {
        match self {
            Load::Fibtest => SLOW_US,
            Load::Bursts | Load::Free => BURST_US,
        }
    }
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Which kernel.
    pub kernel: Kernel,
    /// Which load.
    pub load: Load,
}

impl Run {
    /// `burst` is from when a burst was due to its end; nothing of simulated ones.
    pub fn sample(self, round: u32, used: &Used, burst: Option<&Latency>) -> Sample<Run> {
        let sample = used
            .sample(self, round)
            .with("slices", self.kernel.key())
            .with("load", self.load.key())
            .with("quota_us", (self.load != Load::Free).then_some(QUOTA_US));
        let none = Latency {
            avg_us: f64::NAN,
            p50_us: f64::NAN,
            p99_us: f64::NAN,
            max_us: f64::NAN,
            ..Latency::default()
        };
        let burst = burst.filter(|b| b.completed > 0).unwrap_or(&none);
        sample.latency("burst", burst, &["avg", "p50", "p99", "max"])
    }
}
