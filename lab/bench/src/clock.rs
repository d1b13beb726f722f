//! The clocks that the lab reads.
//!
//! A thread's own CPU clock is exact, because the kernel brings a running thread's account up to
//! date when it asks for itself. Another process's clock is brought up to date only at ticks
//! (kernel/time/posix-cpu-timers.c: `thread_group_cputime` syncs only the caller's own group, and a
//! thread clock of another group is refused), so it serves windows of seconds, not steps.

use std::time::Duration;

/// `CLOCK_MONOTONIC`, the clock that every timestamp of the lab is on.
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC).unwrap_or(0)
}

pub fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}

pub fn own_process_cpu_ns() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0)
}

/// CPU time of process `pid`, threads that have ended included; `None` once it is gone. Off by at
/// most a tick for each of its threads that is running now.
pub fn process_cpu_ns(pid: i32) -> Option<u64> {
    // The kernel's encoding of a dynamic clock: include/linux/posix-timers_types.h,
    // `(~pid << 3) | CPUCLOCK_SCHED`.
    read((!pid << 3) | 2)
}

fn read(clock: libc::clockid_t) -> Option<u64> {
    let mut ts = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `ts` is valid for writes and lives across the call.
    let rc = unsafe { libc::clock_gettime(clock, &raw mut ts) };
    (rc == 0).then(|| ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64)
}

/// Sleeps until `at_ns` on the monotonic clock; returns at once when that is past. A signal may end
/// it early, so loops that wait for a time read the clock again.
pub fn sleep_until(at_ns: u64) {
    let ts = libc::timespec {
        tv_sec: (at_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (at_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: `ts` is valid for reads; a null remainder is allowed for absolute sleeps.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const ts,
            std::ptr::null_mut(),
        );
    }
}

/// As nanoseconds; more than 584 years is not asked for.
pub fn ns(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// Timer interrupts a second, read from the resolution of the coarse clock, which is one tick.
pub fn hz() -> u32 {
    let mut ts = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `ts` is valid for writes.
    let rc = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut ts) };
    if rc != 0 || ts.tv_nsec <= 0 {
        return 0;
    }
    ((1_000_000_000 + ts.tv_nsec / 2) / ts.tv_nsec) as u32
}

/// Asks for timers without slack, so that a generator's sleeps end when they should.
pub fn no_timer_slack() {
    // SAFETY: PR_SET_TIMERSLACK takes one integer and touches no memory.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1usize, 0usize, 0usize, 0usize);
    }
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
