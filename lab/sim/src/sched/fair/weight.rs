//! What a nice level, a policy and a cpu.weight come to in the kernel's weights.

use crate::spec::Policy;

/// Weights are kept times 2^10, as the kernel does on 64 bit: a small group's
/// part on one of many CPUs would vanish otherwise.
pub(super) const WEIGHT_SHIFT: u32 = 10;
/// Nice 0, times 2^10: virtual time runs as fast as time.
pub(super) const NICE_0: u64 = 1024 << WEIGHT_SHIFT;
/// SCHED_IDLE's weight, and a cpu.idle group's.
pub(super) const WEIGHT_IDLE: u64 = 3 << WEIGHT_SHIFT;
/// No group weighs less than this on any CPU.
pub(super) const SHARES_MIN: u64 = 2;

/// The kernel's sched_prio_to_weight: a factor of about 1.25 a level.
pub(super) const NICE_WEIGHT: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];

/// A task's weight, times 2^10.
pub(crate) fn task_weight(policy: Policy, nice: i8) -> u64 {
    if policy == Policy::Idle {
        return WEIGHT_IDLE;
    }
    let level = (i32::from(nice) + 20).clamp(0, 39) as usize;
    u64::from(NICE_WEIGHT[level]) << WEIGHT_SHIFT
}

/// A group's shares for cpu.weight, times 2^10 (sched_weight_from_cgroup).
pub(super) fn group_shares(weight: u32, idle: bool) -> u64 {
    if idle {
        return WEIGHT_IDLE;
    }
    let shares = (u64::from(weight) * 1024 + 50) / 100;
    shares.max(1) << WEIGHT_SHIFT
}
