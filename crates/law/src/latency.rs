//! Latency hints: -20 (first) to 19 (last), a bounded offset of the deadline (`law/latency.h`, `law/latency.md`).
//!
//! A hint says when a task gets its CPU time, never how much. Virtual times are `u64` that wrap, as in the kernel.

/// The most urgent hint.
pub const HINT_FIRST: i32 = -20;
/// The least urgent hint.
pub const HINT_LAST: i32 = 19;
/// The shortest slice that the kernel takes.
pub const SLICE_MIN_NS: u64 = 100_000;
/// The longest slice that the kernel takes.
pub const SLICE_MAX_NS: u64 = 100_000_000;

/// What orders two tasks of one queue.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rank {
    /// Virtual deadline, from [`deadline`].
    pub deadline: u64,
    /// The task's hint.
    pub hint: i32,
    eligible: u32,
}

impl Rank {
    /// `eligible`: the task's lag is not negative.
    pub fn new(deadline: u64, hint: i32, eligible: bool) -> Self {
        Self {
            deadline,
            hint,
            eligible: u32::from(eligible),
        }
    }

    /// The pick rule: is this one to run rather than the other? Of two equal ones neither is.
    pub fn first(&self, other: &Self) -> bool {
        // SAFETY: both pointers are valid for the call, and the type mirrors the C struct (its size is tested).
        unsafe { tg_native_latency_first(self, other) != 0 }
    }
}

unsafe extern "C" {
    fn tg_native_latency_offset_ns(hint: i32, period_ns: u64) -> i64;
    fn tg_native_latency_deadline(vruntime: u64, slice_v: u64, hint: i32, period_ns: u64) -> u64;
    fn tg_native_latency_before(a: u64, b: u64) -> i32;
    fn tg_native_latency_first(a: *const Rank, b: *const Rank) -> i32;
    fn tg_native_latency_slice_ns(hint: i32, base_ns: u64) -> u64;
    fn tg_native_latency_hint(slice_ns: u64, base_ns: u64) -> i32;
    fn tg_native_latency_fork(parent_hint: i32, inherit: i32) -> i32;
    #[cfg(test)]
    fn tg_native_latency_size() -> u64;
}

/// `hint / 20` of a latency period, in virtual time.
pub fn offset_ns(hint: i32, period_ns: u64) -> i64 {
    // SAFETY: takes and returns integers only.
    unsafe { tg_native_latency_offset_ns(hint, period_ns) }
}

/// The virtual deadline; `slice_v` is the slice divided by the weight.
pub fn deadline(vruntime: u64, slice_v: u64, hint: i32, period_ns: u64) -> u64 {
    // SAFETY: as in `offset_ns`.
    unsafe { tg_native_latency_deadline(vruntime, slice_v, hint, period_ns) }
}

/// Is virtual time `a` before `b`? They wrap.
pub fn before(a: u64, b: u64) -> bool {
    // SAFETY: as in `offset_ns`.
    unsafe { tg_native_latency_before(a, b) != 0 }
}

/// The slice for `sched_setattr` that stands for a hint on a stock kernel: `base * 1.25^hint`, in the kernel's range.
pub fn slice_ns(hint: i32, base_ns: u64) -> u64 {
    // SAFETY: as in `offset_ns`.
    unsafe { tg_native_latency_slice_ns(hint, base_ns) }
}

/// The hint whose slice is nearest; at the kernel's bounds the last of those that share it.
pub fn hint_of(slice_ns: u64, base_ns: u64) -> i32 {
    // SAFETY: as in `offset_ns`.
    unsafe { tg_native_latency_hint(slice_ns, base_ns) }
}

/// The hint of a forked task.
pub fn fork(parent_hint: i32, inherit: bool) -> i32 {
    // SAFETY: as in `offset_ns`.
    unsafe { tg_native_latency_fork(parent_hint, i32::from(inherit)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_has_the_size_of_the_original() {
        // SAFETY: takes nothing and returns an integer.
        assert_eq!(
            unsafe { tg_native_latency_size() },
            size_of::<Rank>() as u64
        );
    }
}
