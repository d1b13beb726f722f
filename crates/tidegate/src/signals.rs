//! Signals as something to wait for, for a command that has to end in order.

use std::time::Instant;

/// Signals that ask for the end, held back so that the scheduler is always taken out in order.
pub struct Signals(libc::sigset_t);

impl Signals {
    pub fn block() -> Signals {
        // SAFETY: the set is initialised by sigemptyset before it is read, and lives on the stack of this call alone.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            Signals(set)
        }
    }

    /// Waits for one of them; false: the time is over.
    pub fn wait_until(&self, until: Instant) -> bool {
        let span = until.saturating_duration_since(Instant::now());
        let timeout = libc::timespec {
            tv_sec: span.as_secs() as libc::time_t,
            tv_nsec: span.subsec_nanos() as libc::c_long,
        };
        // SAFETY: both pointers are to values that live for the call; no information is asked for.
        unsafe { libc::sigtimedwait(&self.0, std::ptr::null_mut(), &timeout) > 0 }
    }
}
