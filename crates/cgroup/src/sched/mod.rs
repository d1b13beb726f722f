//! Latency hints on a stock kernel: a hint becomes a slice of the fair class's own (6.12 and
//! later), written task by task.
//!
//! The fair class runs, of those it owes time, the task with the earliest deadline, and a task's
//! deadline is one slice ahead: a shorter slice gets a task its turn sooner, and makes each turn as
//! much shorter. Its share stays ([`tidegate_law::latency`]). Before 6.12 a hint above 0 becomes
//! SCHED_BATCH, which preempts nothing as it wakes; one below 0 has no effect.
//!
//! [`crate::sched_attr`] is the system call, [`tasks`] finds the tasks that a hint is for, [`hint`]
//! gives them the slice and takes it back. `requeue` uses the same call for another end: tasks that
//! wait with a weight that their group no longer has.

pub mod hint;
pub(crate) mod requeue;
pub mod tasks;

pub use crate::sched_attr::{BATCH, DEADLINE, EXT, FIFO, IDLE, NORMAL, SchedWrite, TaskSched};

use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::{KernelFs, KfsError, KfsResult, Op, task_path};

/// A slice that no default is, for the probe.
const PROBE_NS: u64 = 7_123_456;

/// The kernel's default slice is a constant times this many steps, `1 + log2` of the CPUs online,
/// of which it counts 8 at most (`get_update_sysctl_factor`).
const STEPS_MAX: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Support {
    pub slices: bool,
    pub base_ns: u64,
    steps: u64,
}

impl Support {
    /// Whether this is the default slice, now or before a CPU went on or off: a task that slept
    /// since has the old one.
    pub fn is_default(&self, slice_ns: u64) -> bool {
        let of = |steps: u64| self.base_ns / self.steps * steps;
        // The kernel's own multiplication has no rest; the base as it was read may, after a person
        // wrote it.
        slice_ns == self.base_ns || (1..=STEPS_MAX).any(|steps| slice_ns == of(steps))
    }
}

static KNOWN: Mutex<Option<(usize, Support)>> = Mutex::new(None);

/// Tries on a thread of our own, which then ends: whether a task can have a slice, and what the
/// default is. The running kernel is asked once for each number of CPUs, which changes the default.
pub fn probe(fs: &dyn KernelFs) -> KfsResult<Support> {
    let cpus = crate::cpus::online(fs).map_or(1, |cpus| cpus.len());
    if !fs.is_machine() {
        return ask(fs, cpus);
    }
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, support)) = known.filter(|(with, _)| *with == cpus) {
        return Ok(support);
    }
    let support = ask(fs, cpus)?;
    *known = Some((cpus, support));
    Ok(support)
}

fn ask(fs: &dyn KernelFs, cpus: usize) -> KfsResult<Support> {
    let try_it = || -> KfsResult<Support> {
        let own = fs.sched(0)?;
        // Inherited from the process that started this one; the thread ends with it.
        let policy = SchedWrite::Policy {
            policy: NORMAL,
            nice: own.nice,
            reset_on_fork: own.reset_on_fork,
            slice_ns: 0,
        };
        if own.policy != NORMAL {
            fs.set_sched(0, &policy)?;
        }
        let write = |slice_ns| SchedWrite::Slice {
            nice: own.nice,
            slice_ns,
        };
        fs.set_sched(0, &write(PROBE_NS))?;
        let slices = fs.sched(0)?.slice_ns == PROBE_NS;
        fs.set_sched(0, &write(0))?;
        Ok(Support {
            slices,
            base_ns: fs.sched(0)?.slice_ns,
            steps: u64::from(cpus.clamp(1, 8).ilog2()) + 1,
        })
    };
    std::thread::scope(|scope| {
        // A fork bomb leaves no room for a thread: that is an answer, and no reason to panic.
        let thread = std::thread::Builder::new().spawn_scoped(scope, try_it);
        let tried = thread.map_err(no_thread)?.join();
        tried.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn no_thread(error: std::io::Error) -> KfsError {
    let errno = error.raw_os_error().unwrap_or(libc::EAGAIN);
    KfsError::new(Op::SchedGet, task_path(0), errno)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HintSetting {
    SliceNs(u64),
    Batch,
}

pub const SLICES_SINCE: &str = "6.12";

/// Hint to slice; `None` for a hint of 0 and where there is nothing for it.
pub fn compile(hint: i8, support: &Support) -> Option<HintSetting> {
    match hint {
        _ if support.slices => {
            let slice_ns = tidegate_law::latency::slice_ns(i32::from(hint), support.base_ns);
            Some(HintSetting::SliceNs(slice_ns))
        }
        1.. => Some(HintSetting::Batch),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RealFs;
    use crate::testkit::FakeFs;

    #[test]
    fn hints_are_slices_or_batch() {
        let fake = FakeFs::mixed();
        let support = probe(&fake).unwrap();
        assert!(support.slices);
        assert_eq!(support.base_ns, 1_400_000);
        assert_eq!(compile(-20, &support), Some(HintSetting::SliceNs(100_000)));
        assert_eq!(compile(-5, &support), Some(HintSetting::SliceNs(458_752)));
        assert_eq!(compile(0, &support), Some(HintSetting::SliceNs(1_400_000)));
        fake.without_slices();
        let old = probe(&fake).unwrap();
        assert!(!old.slices);
        assert_eq!(compile(5, &old), Some(HintSetting::Batch));
        assert_eq!((compile(-5, &old), compile(0, &old)), (None, None));
    }

    #[test]
    fn the_default_is_known_also_as_it_was_with_other_cpus() {
        let support = probe(&FakeFs::mixed()).unwrap();
        for default in [700_000, 1_400_000, 2_100_000, 2_800_000] {
            assert!(support.is_default(default), "{default}");
        }
        for other in [0, 100_000, 1_400_001, 3_500_000] {
            assert!(!support.is_default(other), "{other}");
        }
    }

    #[test]
    fn the_running_kernel_answers_and_this_thread_stays_as_it_was() {
        let fs = RealFs::new();
        let before = fs.sched(0).unwrap();
        let support = probe(&fs).unwrap();
        assert_eq!(fs.sched(0).unwrap(), before);
        assert_eq!(probe(&fs).unwrap(), support, "as it was found");
        assert_eq!(support.slices, support.base_ns > 0);
    }
}
