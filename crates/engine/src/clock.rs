//! The clock of all times in here, and of those who drive the engine.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use rustix::time::ClockId;

/// `CLOCK_MONOTONIC`, which is also BPF's `bpf_ktime_get_ns`. A suspend does not move it.
pub fn monotonic_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

/// A clock of the kernel in nanoseconds. None is negative, and 584 years fit 64 bits.
pub fn clock_ns(clock: ClockId) -> u64 {
    let now = rustix::time::clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The time since 1970; zero while the machine's clock is before it.
pub fn since_1970() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default()
}

/// Time and waiting, for threads that look again and again; a test's clock passes without waiting.
pub trait Clock: Send + Sync {
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
