//! The clock of all times in here, and of those who drive the engine.

use std::time::Duration;

/// `CLOCK_MONOTONIC`, which is also BPF's `bpf_ktime_get_ns`. A suspend does not move it.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // Seconds since boot and nanoseconds below 10^9: neither is negative, the sum fits 64 bits.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Time and waiting, for threads that look again and again; a test's clock passes without waiting.
pub trait Clock: Send + Sync {
    /// As [`monotonic_ns`].
    fn now_ns(&self) -> u64;

    fn sleep(&self, span: Duration);
}

pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }

    fn sleep(&self, span: Duration) {
        std::thread::sleep(span);
    }
}
