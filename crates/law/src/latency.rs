//! Latency hints: -20 (first) to 19 (last), a bounded offset of the deadline (`law/latency.h`,
//! `law/latency.md`).
//!
//! A hint says when a task gets its CPU time, never how much. Virtual times are `u64` that wrap, as
//! in the kernel.

use crate::ffi;

pub use ffi::{TG_LATENCY_SLICE_MAX_NS as SLICE_MAX_NS, TG_LATENCY_SLICE_MIN_NS as SLICE_MIN_NS};

/// The most urgent hint.
pub const HINT_FIRST: i32 = ffi::TG_LATENCY_FIRST;
/// The least urgent hint.
pub const HINT_LAST: i32 = ffi::TG_LATENCY_LAST as i32;

/// `hint / 20` of a latency period, in virtual time.
pub fn offset_ns(hint: i32, period_ns: u64) -> i64 {
    // SAFETY: takes and returns integers only.
    unsafe { ffi::tg_latency_offset_ns(hint, period_ns) }
}

/// The virtual deadline; `slice_v` is the slice divided by the weight.
pub fn deadline(vruntime: u64, slice_v: u64, hint: i32, period_ns: u64) -> u64 {
    // SAFETY: as in `offset_ns`.
    unsafe { ffi::tg_latency_deadline(vruntime, slice_v, hint, period_ns) }
}

/// Is virtual time `a` before `b`? They wrap.
pub fn before(a: u64, b: u64) -> bool {
    // SAFETY: as in `offset_ns`.
    unsafe { ffi::tg_latency_before(a, b) != 0 }
}

/// The slice for `sched_setattr` that stands for a hint on a stock kernel: `base * 1.25^hint`, in
/// the kernel's range.
pub fn slice_ns(hint: i32, base_ns: u64) -> u64 {
    // SAFETY: as in `offset_ns`.
    unsafe { ffi::tg_latency_slice_ns(hint, base_ns) }
}

/// The hint whose slice is nearest; at the kernel's bounds the last of those that share it.
pub fn hint_of(slice_ns: u64, base_ns: u64) -> i32 {
    // SAFETY: as in `offset_ns`.
    unsafe { ffi::tg_latency_hint(slice_ns, base_ns) }
}
