//! The clocks that the lab reads.
//!
//! A thread's own CPU clock is exact, because the kernel brings a running thread's account up to
//! date when it asks for itself. Another process's clock is brought up to date only at ticks
//! (kernel/time/posix-cpu-timers.c: `thread_group_cputime` syncs only the caller's own group, and a
//! thread clock of another group is refused), so it serves windows of seconds, not steps.

use std::num::NonZeroU64;

use rustix::thread::{clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

/// `CLOCK_MONOTONIC`, the clock that every timestamp of the lab is on.
pub fn monotonic_ns() -> u64 {
    ns(clock_gettime(ClockId::Monotonic))
}

pub fn thread_cpu_ns() -> u64 {
    ns(clock_gettime(ClockId::ThreadCPUTime))
}

pub fn own_process_cpu_ns() -> u64 {
    ns(clock_gettime(ClockId::ProcessCPUTime))
}

fn ns(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time of process `pid`, threads that have ended included; `None` once it is gone. Off by at
/// most a tick for each of its threads that is running now.
pub fn process_cpu_ns(pid: i32) -> Option<u64> {
    let mut ts = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // The kernel's encoding of a dynamic clock: include/linux/posix-timers_types.h,
    // `(~pid << 3) | CPUCLOCK_SCHED`.
    let clock = (!pid << 3) | 2;
    // SAFETY: `ts` is valid for writes and lives across the call.
    let rc = unsafe { libc::clock_gettime(clock, &raw mut ts) };
    (rc == 0).then(|| ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64)
}

/// Sleeps until `at_ns` on the monotonic clock; returns at once when that is past. A signal may end
/// it early, so loops that wait for a time read the clock again.
pub fn sleep_until(at_ns: u64) {
    let at = Timespec {
        tv_sec: (at_ns / 1_000_000_000) as i64,
        tv_nsec: (at_ns % 1_000_000_000) as i64,
    };
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &at);
}

/// Timer interrupts a second, read from the resolution of the coarse clock, which is one tick.
pub fn hz() -> u32 {
    let tick_ns = ns(clock_getres(ClockId::MonotonicCoarse)).max(1);
    ((1_000_000_000 + tick_ns / 2) / tick_ns) as u32
}

/// Asks for timers without slack, so that a generator's sleeps end when they should.
pub fn no_timer_slack() {
    let _ = set_current_timer_slack(NonZeroU64::new(1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_move_and_know_their_process() {
        let (m, t) = (monotonic_ns(), thread_cpu_ns());
        let mut x = 1u64;
        while thread_cpu_ns() < t + 12_000_000 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(monotonic_ns() > m);
        let pid = std::process::id() as i32;
        assert!(process_cpu_ns(pid).expect("our own clock") > 0);
        assert!(process_cpu_ns(i32::MAX / 16).is_none());
        assert!([100, 250, 300, 1000].contains(&hz()), "HZ {}", hz());
    }

    #[test]
    fn sleeping_until_the_past_returns() {
        let before = monotonic_ns();
        sleep_until(before - 1);
        sleep_until(before + 2_000_000);
        assert!(monotonic_ns() >= before + 2_000_000);
    }
}
