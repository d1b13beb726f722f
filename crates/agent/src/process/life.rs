//! How the agent was started, since when it runs, and whether it leaves.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_engine::clock::{ClockId, clock_ns};
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
    pub(crate) own_cpu: Mutex<OwnCpu>,
    pub leaving: Arc<AtomicBool>,
    pub left: Notify,
}

/// CPU time of the agent's process, as the kernel counts it, over the last minute.
pub(crate) struct OwnCpu(VecDeque<Reading>);

struct Reading {
    at_ns: u64,
    used_ns: u64,
}

impl Reading {
    fn at(now_ns: u64) -> Self {
        Self {
            at_ns: now_ns,
            used_ns: clock_ns(ClockId::ProcessCPUTime),
        }
    }
}

impl OwnCpu {
    const WINDOW_NS: u64 = 60_000_000_000;

    fn since(started_ns: u64) -> Self {
        Self([Reading::at(started_ns)].into())
    }

    /// Called about once a second. The first reading that is left is a minute old, or the first.
    pub fn poll(&mut self, now_ns: u64) {
        self.0.push_back(Reading::at(now_ns));
        let is_old = |reading: &Reading| now_ns.saturating_sub(reading.at_ns) >= Self::WINDOW_NS;
        while self.0.get(1).is_some_and(is_old) {
            self.0.pop_front();
        }
    }

    /// The CPU time used since the first reading that is left, and the time since then.
    pub fn used_and_window_ns(&self, now_ns: u64) -> (u64, u64) {
        let now = Reading::at(now_ns);
        let first = self.0.front().unwrap_or(&now);
        (
            now.used_ns - first.used_ns,
            now_ns.saturating_sub(first.at_ns),
        )
    }
}

impl Life {
    pub fn new(mode: Mode, started_ns: u64) -> Self {
        Self {
            mode,
            started_ns,
            own_cpu: Mutex::new(OwnCpu::since(started_ns)),
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
