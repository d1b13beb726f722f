//! Ctrl-C: a signal sets a flag, every wait of the lab looks at it, and guards clean up.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::{LabError, clock};

static STOP: AtomicBool = AtomicBool::new(false);
const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

extern "C" fn note_signal(_: libc::c_int) {
    STOP.store(true, Ordering::SeqCst);
}

/// Puts the former handlers back when dropped.
pub struct Signals {
    former: Vec<(libc::c_int, libc::sigaction)>,
}

/// Catches the signals that end a program by hand, until the guard is dropped.
pub fn catch_signals() -> Signals {
    STOP.store(false, Ordering::SeqCst);
    let mut former = Vec::new();
    for signal in SIGNALS {
        // SAFETY: sigaction is a plain C structure for which all zeroes is a valid value; the
        // handler only stores to an atomic, which is async-signal-safe.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(libc::c_int) = note_signal;
            action.sa_sigaction = handler as libc::sighandler_t;
            let mut old: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, &raw const action, &raw mut old) == 0 {
                former.push((signal, old));
            }
        }
    }
    Signals { former }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for (signal, old) in &self.former {
            // SAFETY: `old` is what the kernel gave us for this signal.
            unsafe {
                libc::sigaction(*signal, old, std::ptr::null_mut());
            }
        }
    }
}

/// An error once a signal has come.
pub fn check() -> Result<(), LabError> {
    if STOP.load(Ordering::SeqCst) {
        Err(LabError::Interrupted)
    } else {
        Ok(())
    }
}

/// Sleeps until `at_ns`, in pieces, so that a signal is seen within 50 ms even where it went to
/// another thread.
pub fn sleep_until(at_ns: u64) -> Result<(), LabError> {
    loop {
        check()?;
        let now = clock::monotonic_ns();
        if now >= at_ns {
            return Ok(());
        }
        clock::sleep_until(at_ns.min(now + 50_000_000));
    }
}

/// Sleeps for `ns` nanoseconds; see [`sleep_until`].
pub fn sleep_ns(ns: u64) -> Result<(), LabError> {
    sleep_until(clock::monotonic_ns() + ns)
}
