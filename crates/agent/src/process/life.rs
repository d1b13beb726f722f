//! How the agent was started, since when it runs, and whether it leaves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

/// How the agent was started, which decides when it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By the first `run` or `set`: leaves with the last gate.
    OnDemand,
    /// By a service manager: stays.
    Service,
}

impl Mode {
    /// As shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::OnDemand => "on-demand",
            Mode::Service => "service",
        }
    }
}

/// The agent's life.
pub struct Life {
    /// How it was started.
    pub mode: Mode,
    /// When it started.
    pub started_ns: u64,
    /// Its own CPU.
    pub own_cpus: Mutex<f64>,
    /// Set once, when it leaves.
    pub leaving: Arc<AtomicBool>,
    /// Woken then.
    pub left: Notify,
}

impl Life {
    /// Begins at `started_ns`.
    pub fn new(mode: Mode, started_ns: u64) -> Self {
        Self {
            mode,
            started_ns,
            own_cpus: Mutex::new(0.0),
            leaving: Arc::default(),
            left: Notify::new(),
        }
    }

    /// Wakes what waits for the end.
    pub fn tell_left(&self) {
        self.left.notify_waiters();
        self.left.notify_one();
    }

    /// Waits until the agent leaves.
    pub async fn left(&self) {
        while !self.leaving.load(Ordering::Acquire) {
            self.left.notified().await;
        }
    }
}
