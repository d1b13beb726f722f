//! Ctrl-C: a signal sets a flag, every wait of the lab looks at it, and guards clean up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::{LabError, clock};

static STOP: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Signals are caught until this is dropped.
pub struct Signals(Vec<SigId>);

/// Catches the signals that end a program by hand.
pub fn catch_signals() -> Signals {
    STOP.store(false, Ordering::SeqCst);
    let register = |signal| flag::register(signal, Arc::clone(&STOP)).ok();
    Signals(
        [SIGINT, SIGTERM, SIGHUP]
            .into_iter()
            .filter_map(register)
            .collect(),
    )
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.0.drain(..) {
            low_level::unregister(id);
        }
    }
}

pub fn check() -> Result<(), LabError> {
    match STOP.load(Ordering::SeqCst) {
        true => Err(LabError::Interrupted),
        false => Ok(()),
    }
}

/// Sleeps until `at_ns`, in pieces, so that a signal is seen within 50 ms even if it went to
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

/// Asks again every 5 ms until it is so; false once the patience ends.
pub fn wait_for(
    patience_ns: u64,
    mut is_so: impl FnMut() -> Result<bool, LabError>,
) -> Result<bool, LabError> {
    let until = clock::monotonic_ns() + patience_ns;
    while !is_so()? {
        if clock::monotonic_ns() > until {
            return Ok(false);
        }
        sleep_ns(5_000_000)?;
    }
    Ok(true)
}
