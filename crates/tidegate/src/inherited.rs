//! What this process inherited and Rust's start-up code changes before `main`, so that `run` can
//! hand it on untouched.
//!
//! The standard library ignores SIGPIPE and opens `/dev/null` on closed standard descriptors. A
//! function in `.init_array` runs before that and notes both.

use std::sync::atomic::{AtomicU8, Ordering};

/// Bit 0 to 2: that descriptor was closed. Bit 3: SIGPIPE was ignored already.
static NOTED: AtomicU8 = AtomicU8::new(0);
const SIGPIPE_IGNORED: u8 = 1 << 3;

extern "C" fn note() {
    let mut noted = 0;
    for fd in 0..3 {
        // SAFETY: asks about a descriptor number; no memory is passed.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            noted |= 1 << fd;
        }
    }
    // SAFETY: all zeros is a valid sigaction, and the kernel writes one over it; a null new action
    // changes nothing.
    let ignored = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    };
    if ignored {
        noted |= SIGPIPE_IGNORED;
    }
    NOTED.store(noted, Ordering::Relaxed);
}

// SAFETY: the loader calls each function in this section once before main; ours calls only
// async-signal-safe functions.
#[unsafe(link_section = ".init_array")]
#[used]
static NOTE: extern "C" fn() = note;

/// Puts back what was inherited; for use right before exec.
pub fn restore() {
    let noted = NOTED.load(Ordering::Relaxed);
    if noted & SIGPIPE_IGNORED == 0 {
        // SAFETY: sets a disposition to its default; no handler is installed.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    for fd in 0..3 {
        if noted & (1 << fd) != 0 {
            // SAFETY: nothing is printed between here and exec; the descriptor is the /dev/null of
            // the start-up code.
            unsafe { libc::close(fd) };
        }
    }
}
