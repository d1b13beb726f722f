//! The sched_ext engine in the agent: a scheduler of our own that is loaded, told what the gates
//! ask for, watched, and loaded again.
//!
//! While it is in force, kernel files hold a copy of every limit on a group, marked as ours (see
//! `runtime::scheduler_plan` and docs/sched-ext.md): side work's floor and idle class, hard caps as
//! quotas. Whatever ends the scheduler, those act from that moment on, and the control loop, which
//! has gone on with its law, moves quotas again in its next turn.
//!
//! | file | idea |
//! |---|---|
//! | `kernel` | what is asked of the kernel; tests have another |
//! | `machine` | what the scheduler is told of the CPUs |
//! | `backoff` | when again |
//! | `feasible` | terms that the kernel's watchdog makes impossible |
//! | `counts` | what is shown of a gate |

pub(crate) mod backoff;
pub(crate) mod counts;
pub(crate) mod feasible;
pub(crate) mod kernel;
pub mod machine;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tidegate_engine::sync::lock;
use tidegate_sched_ext::{CapStat, GateTerms, LimitStat, SchedExtError, SchedulerEnd};

use backoff::Backoff;
use kernel::{Kernel, Scheduler, SchedulerError};

pub(crate) const OFF: u8 = 0;
/// The copies are being written; the scheduler comes next.
pub(crate) const ARMING: u8 = 1;
pub(crate) const ON: u8 = 2;
/// It has just ended; the reason is not read yet.
pub(crate) const LOST: u8 = 3;

/// A scheduler that the kernel has checked, or why there is none.
pub(crate) type Prepared = Result<Box<dyn Scheduler>, SchedulerError>;

#[derive(Clone, Debug, Default)]
pub(crate) struct SchedExtHistory {
    pub loads: u64,
    pub ends: u64,
    pub since_ns: Option<u64>,
    /// Why it is off, in a sentence; `None` while it is on, or before it was first loaded.
    pub why: Option<String>,
    pub last: Option<(SchedulerEnd, u64)>,
    /// Why it could not be told of the gates, until it is told of all.
    pub update_error: Option<String>,
}

#[derive(Default)]
pub(crate) struct Inner {
    pub loaded: Option<Box<dyn Scheduler>>,
    pub preparing: Option<JoinHandle<Prepared>>,
    pub gates: BTreeMap<u64, GateTerms>,
    pub mirrors: BTreeSet<u64>,
    pub machine: Option<(u32, u32)>,
    pub backoff: Backoff,
    pub next_ns: Option<u64>,
    pub history: SchedExtHistory,
    pub notes: BTreeMap<String, Vec<String>>,
    pub polled_ns: u64,
    /// What became of each quota, by cgroup id, and when that was read.
    pub limits: (u64, BTreeMap<u64, LimitStat>),
    pub caps: (u64, BTreeMap<u64, CapStat>),
    pub earlier: counts::Earlier,
}

impl Inner {
    /// The scheduler that has ended; what it counted is kept.
    pub(crate) fn take(&mut self) -> Option<Box<dyn Scheduler>> {
        let ended = self.loaded.take()?;
        self.earlier.take_in(&*ended, self.gates.keys());
        self.limits = Default::default();
        self.caps = Default::default();
        Some(ended)
    }

    pub(crate) fn set_mirror(&mut self, id: u64, mirror: bool) -> Result<(), SchedExtError> {
        let Some(scheduler) = &mut self.loaded else {
            return Ok(());
        };
        if self.mirrors.contains(&id) == mirror {
            return Ok(());
        }
        scheduler.set_mirror(id, mirror)?;
        match mirror {
            true => self.mirrors.insert(id),
            false => self.mirrors.remove(&id),
        };
        Ok(())
    }
}

/// What the agent knows of the scheduler that it supervises. Locks: `gates` before this one, and
/// none of the agent's within it.
pub(crate) struct SchedExtSupervisor {
    /// `None`: the engine is cgroup.
    pub(crate) kernel: Option<Arc<dyn Kernel>>,
    watch: AtomicU8,
    pub(crate) inner: Mutex<Inner>,
}

impl SchedExtSupervisor {
    pub fn new(kernel: Option<Arc<dyn Kernel>>) -> Self {
        let inner = Inner {
            next_ns: Some(0),
            ..Inner::default()
        };
        Self {
            kernel,
            watch: AtomicU8::new(OFF),
            inner: Mutex::new(inner),
        }
    }

    pub fn is_wanted(&self) -> bool {
        self.kernel.is_some()
    }

    /// Whether the scheduler enforces the terms, or is just about to. The loop asks at each turn:
    /// an end is seen here first.
    pub fn holds(&self) -> bool {
        match (self.watch.load(Ordering::Acquire), &self.kernel) {
            (ARMING, _) => true,
            (ON, Some(kernel)) => {
                let in_force = kernel.in_force();
                if !in_force {
                    // Unless it was taken out on purpose meanwhile.
                    let _ =
                        self.watch
                            .compare_exchange(ON, LOST, Ordering::AcqRel, Ordering::Acquire);
                }
                in_force
            }
            _ => false,
        }
    }

    pub fn is_loaded(&self) -> bool {
        self.is_wanted() && lock(&self.inner).loaded.is_some()
    }

    pub fn sees_quotas(&self) -> bool {
        let inner = lock(&self.inner);
        inner.loaded.as_ref().is_some_and(|one| one.sees_quotas())
    }

    pub(crate) fn set_watch(&self, watch: u8) {
        self.watch.store(watch, Ordering::Release);
    }

    /// A group's quota, by its id, is a copy of what the scheduler enforces otherwise; or it is
    /// none any more.
    pub fn mark(&self, id: u64, mirror: bool) {
        let mut inner = lock(&self.inner);
        if let Err(why) = inner.set_mirror(id, mirror) {
            inner.history.update_error = Some(why.to_string());
        }
    }
}
