//! What a machine is made of: CPUs, kernel, costs.

use crate::contention::Contention;
use crate::topology::Topology;

/// Kernel 6.18's default slice on this many CPUs: 700 µs · (1 + log2(min(CPUs, 8))), 2.8 ms from 8
/// CPUs on (up to 6.14 the unit was 750 µs: 3 ms).
pub fn base_slice_ns(cpus: u32) -> u64 {
    700_000 * u64::from(1 + cpus.clamp(1, 8).ilog2())
}

/// What the kernel itself takes, in CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// A context switch, paid by the task that comes in.
    pub switch_ns: u64,
    /// Waking another task, paid by the waker.
    pub wakeup_ns: u64,
    /// Any other op that enters the kernel (send, receive, lock, yield, …).
    pub op_ns: u64,
    /// Leaving idle (interrupt and exit of the idle state), paid by the task
    /// that the idle CPU was woken for.
    pub idle_exit_ns: u64,
    /// Caches that are cold after a move to another CPU, paid by the moved task.
    pub migrate_ns: u64,
    /// A timer tick, paid by the running task.
    pub tick_ns: u64,
}

impl Costs {
    /// A kernel that takes no time: for tests of exact arithmetic.
    pub const FREE: Costs = Costs {
        switch_ns: 0,
        wakeup_ns: 0,
        op_ns: 0,
        idle_exit_ns: 0,
        migrate_ns: 0,
        tick_ns: 0,
    };
}

impl Default for Costs {
    /// A server of the 2020s, in round numbers (the host measured pipe
    /// ping-pong at 7.9 µs for two sends, two receives, two wakeups and two
    /// switches, inside a virtual machine).
    fn default() -> Costs {
        Costs {
            switch_ns: 1_000,
            wakeup_ns: 700,
            op_ns: 500,
            idle_exit_ns: 2_000,
            migrate_ns: 3_000,
            tick_ns: 1_000,
        }
    }
}

#[derive(Clone, Debug)]
pub struct MachineConfig {
    pub topology: Topology,
    /// The timer tick (HZ=250: 4 ms).
    pub tick_ns: u64,
    pub bandwidth_slice_us: u64,
    /// Whether slices expire with their period (kernels before de53fd7aed):
    /// kept as a comparison only.
    pub slices_expire: bool,
    pub costs: Costs,
    pub contention: Contention,
    /// The seed of everything random.
    pub seed: u64,
    /// Whether the machine checks its invariants as it runs.
    pub check: bool,
}

impl MachineConfig {
    /// A machine of one package, HZ=250, and no contention.
    pub fn new(cpus: u32) -> MachineConfig {
        MachineConfig {
            topology: Topology::new(cpus, 1, cpus),
            tick_ns: 4_000_000,
            bandwidth_slice_us: 5_000,
            slices_expire: false,
            costs: Costs::default(),
            contention: Contention::NONE,
            seed: 1,
            check: false,
        }
    }
}
