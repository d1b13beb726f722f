//! How the agent was started, since when it runs, and whether it leaves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By the first `run` or `set`: leaves with the last gate.
    OnDemand,
    Service,
}

impl Mode {
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::OnDemand => "on-demand",
            Mode::Service => "service",
        }
    }
}

pub struct Life {
    pub mode: Mode,
    pub started_ns: u64,
    pub own_cpus: Mutex<f64>,
    pub leaving: Arc<AtomicBool>,
    pub left: Notify,
}

impl Life {
    pub fn new(mode: Mode, started_ns: u64) -> Self {
        Self {
            mode,
            started_ns,
            own_cpus: Mutex::new(0.0),
            leaving: Arc::default(),
            left: Notify::new(),
        }
    }

    pub fn tell_left(&self) {
        self.left.notify_waiters();
        self.left.notify_one();
    }

    pub async fn left(&self) {
        while !self.leaving.load(Ordering::Acquire) {
            self.left.notified().await;
        }
    }
}
