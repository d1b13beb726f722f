//! A service manager ends us with SIGTERM, a person with Ctrl-C.

use std::io;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

pub(super) struct Signals {
    term: Signal,
    int: Signal,
    is_told: bool,
}

impl Signals {
    /// From here on, a signal no longer ends the process by itself.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            is_told: false,
        })
    }

    /// The same before the runtime has begun.
    pub(super) fn follow(runtime: &Runtime) -> io::Result<Self> {
        let _entered = runtime.enter();
        Self::new()
    }

    /// Waits for a signal to end. After the first signal, every call returns at once.
    pub(super) async fn recv(&mut self) {
        if !self.is_told {
            tokio::select! {
                _ = self.term.recv() => {}
                _ = self.int.recv() => {}
            }
            self.is_told = true;
        }
    }
}
