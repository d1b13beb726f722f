//! What is simulated: kernels with either kind of slices, on machines of several sizes.

use tidegate_sim::MachineConfig;

use crate::beds::sim::{MS, plain};

/// The machine of the commit's test.
pub const CPUS: u32 = 80;
/// The kernel's slice.
pub const DEFAULT_SLICE_US: u64 = 5_000;
/// Timer ticks: HZ 1000 and HZ 250. Enforcement waits for a tick, so what a busy thread gets from a pool
/// that is always empty is the time until one.
pub const TICKS_NS: [u64; 2] = [MS, 4 * MS];

/// One kernel on one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Size of the machine.
    pub cpus: u32,
    /// Time between two ticks.
    pub tick_ns: u64,
    /// Whether slices expire.
    pub expire: bool,
    /// Their size.
    pub slice_us: u64,
}

/// One simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The kernel.
    pub kernel: Kernel,
    /// From 0; each has periods of another phase to the ticks.
    pub round: u32,
}

/// Its machine.
pub fn config(k: Kernel, seed: u64) -> MachineConfig {
    MachineConfig {
        tick_ns: k.tick_ns,
        bandwidth_slice_us: k.slice_us,
        slices_expire: k.expire,
        ..plain(k.cpus, seed)
    }
}
