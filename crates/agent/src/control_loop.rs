//! The control loop's state, as its thread and all others share it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_engine::control::{Control, Demand};
use tidegate_engine::quota_planner::{PERIOD_US, bandwidth_for};
use tidegate_engine::sense::Meters;
use tidegate_engine::sync::lock;

use crate::process::lease::{Lease, monotonic_ns};

/// The kernel's least quota over the longest period we use: side work is never slower than this (1
/// % of one CPU).
const FLOOR_MIN_UCPU: u64 = 10_000;

const FAILED_CUTS_MAX: u32 = 3;

pub struct ControlLoop {
    pub control: Mutex<Control>,
    pub meters: Mutex<Meters>,
    pub lease: Lease,
    pub tick_ns: u64,
    /// The loop's period while side work may have to be cut ([`Control::period_ns`]).
    pub period_ns: u64,
    pub sensing_note: String,
    /// Ends the pause of the loop's thread.
    pub(crate) wake: Wake,
}

#[derive(Default)]
pub(crate) struct Wake {
    is_due: Mutex<bool>,
    changed: Condvar,
}

impl Wake {
    /// The next step is due at once.
    pub fn now(&self) {
        *lock(&self.is_due) = true;
        self.changed.notify_one();
    }

    /// Waits until this time, or until a step is due at once.
    pub fn wait_until(&self, at_ns: u64) {
        let mut is_due = lock(&self.is_due);
        loop {
            let left_ns = at_ns.saturating_sub(monotonic_ns());
            if std::mem::take(&mut *is_due) || left_ns == 0 {
                return;
            }
            let waited = self
                .changed
                .wait_timeout(is_due, Duration::from_nanos(left_ns));
            is_due = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl ControlLoop {
    pub(crate) fn new(control: Control, lease: Lease, tick_ns: u64, period_ns: u64) -> Self {
        Self {
            control: Mutex::new(control),
            meters: Mutex::default(),
            lease,
            tick_ns,
            period_ns,
            sensing_note: String::new(),
            wake: Wake::default(),
        }
    }

    /// The step's state. The loop waits for it: no file is read while it is held.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Control> {
        lock(&self.control)
    }

    /// Renews the lease at `now_ns`, which says that the loop is in control: not while it could not
    /// cut side work for three steps in a row (no descriptor left, a tree that is read-only), for
    /// the guardian may. Says whether it did.
    pub(crate) fn renew_lease(&self, now_ns: u64) -> bool {
        let in_control = self.lock().quotas.failed_cuts() < FAILED_CUTS_MAX;
        if in_control {
            self.lease.beat(now_ns);
        }
        in_control
    }

    /// The static limit that side work falls back to: the tolerance.
    pub(crate) fn floor(&self, demand: &Demand) -> Bandwidth {
        let cpus = u64::from(self.lock().online_cpus().max(1));
        // 8192 CPUs · 10^6 ppm fits easily: a CPU is 10^6 ucpu, so ppm · CPUs is the rate in ucpu.
        quota_of((cpus * u64::from(demand.tolerance_ppm)).max(FLOOR_MIN_UCPU))
    }

    pub(crate) fn floor_now(&self) -> Bandwidth {
        let demand = self.lock().demand().clone();
        self.floor(&demand)
    }

    /// The quota of side work that begins now, while this much is kept idle: programs read it once,
    /// to start as many threads. Without a history it is the tolerance.
    pub(crate) fn first(&self, headroom_ppm: u32) -> Bandwidth {
        let first_ucpu = self.lock().first_ucpu(headroom_ppm).map(quota_of);
        let floor = self.floor_now();
        let above = first_ucpu.filter(|first| floor.rate_no_above(first));
        above.unwrap_or(floor)
    }
}

fn quota_of(rate_ucpu: u64) -> Bandwidth {
    bandwidth_for(rate_ucpu, PERIOD_US)
}
