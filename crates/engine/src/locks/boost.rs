//! A holder goes first: for a turn it is a deadline task of the kernel's.
//!
//! Such a task runs before all of the fair class, whatever the quota and the idle class of its
//! group, and gets its turn once in each period and not more: the kernel itself bounds it, also
//! when nobody is left to take it back. It leaves its neighbours in the group as limited as they
//! are. What it forks meanwhile is ordinary (`SCHED_FLAG_RESET_ON_FORK`). The kernel refuses a task
//! that may not run on every CPU of its domain, and there nothing is given.

use serde::{Deserialize, Serialize};

use tidegate_cgroup::sched::tasks::TaskId;
use tidegate_cgroup::sched::{BATCH, DEADLINE, EXT, IDLE, NORMAL, SchedWrite, TaskSched, probe};
use tidegate_cgroup::{KernelFs, KfsError, KfsResult};

/// The kernel gives a turn once in this.
pub const PERIOD_NS: u64 = 100_000_000;

/// What a task is given before its turn ends: next to nothing (see [`put_back`]); the least turn in
/// the longest period.
const SHRUNK: SchedWrite = SchedWrite::Deadline {
    runtime_ns: SHRUNK_NS,
    period_ns: 4_000_000_000,
};
const SHRUNK_NS: u64 = 1_024;

/// A task that goes first, and how it was scheduled before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifted {
    pub task: TaskId,
    pub was: TaskSched,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boost {
    pub tasks: Vec<Lifted>,
    /// The turn of each: CPU time, once in [`PERIOD_NS`].
    pub turn_ns: u64,
}

impl Boost {
    /// What is to be written down before [`give`]: tasks of the fair class, with what they have
    /// now. Their turn is still open.
    pub fn plan(fs: &dyn KernelFs, tids: &[i32]) -> Self {
        let of = |tid: &i32| {
            let task = TaskId::now(fs, *tid)?;
            let was = fs.sched(*tid).ok()?;
            let fair = matches!(was.policy, NORMAL | BATCH | IDLE | EXT);
            fair.then_some(Lifted { task, was })
        };
        Self {
            tasks: tids.iter().filter_map(of).collect(),
            turn_ns: 0,
        }
    }
}

impl Boost {
    fn is_ours(&self, now: &TaskSched) -> bool {
        // Of a deadline task the kernel tells the turn in the slice's place.
        now.policy == DEADLINE && [self.turn_ns, SHRUNK_NS].contains(&now.slice_ns)
    }
}

/// Gives each task its turn. What has ended or become something else is left.
pub fn give(fs: &dyn KernelFs, first: &Boost) -> KfsResult<()> {
    for lifted in first.tasks.iter().filter(|lifted| lifted.task.lives(fs)) {
        let tid = lifted.task.tid;
        let as_before = |now: TaskSched| now.policy == lifted.was.policy;
        if !fs.sched(tid).is_ok_and(as_before) {
            continue;
        }
        let write = SchedWrite::Deadline {
            runtime_ns: first.turn_ns,
            period_ns: PERIOD_NS,
        };
        match fs.set_sched(tid, &write) {
            Err(error) if !error.is_gone() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undone {
    pub others: u64,
    pub failed: Option<KfsError>,
}

/// Takes it back from each task that has it: idempotent.
pub fn take(fs: &dyn KernelFs, first: &Boost) -> Undone {
    let mut undone = Undone::default();
    for lifted in first.tasks.iter().filter(|lifted| lifted.task.lives(fs)) {
        match fs.sched(lifted.task.tid) {
            Ok(now) if first.is_ours(&now) => match put_back(fs, lifted) {
                Err(error) if !error.is_gone() => undone.failed = undone.failed.or(Some(error)),
                _ => {}
            },
            Ok(now) => undone.others += u64::from(now.policy == DEADLINE),
            Err(error) if error.is_gone() => {}
            Err(error) => undone.failed = undone.failed.or(Some(error)),
        }
    }
    undone
}

/// A task that sleeps as it stops being a deadline task keeps its part of what the kernel admits of
/// them (seen on 6.18: `switched_from_dl` leaves it to a timer that need not be armed), and after a
/// hundred such turns nobody gets one. So the turn is first made so small that it is no part.
fn put_back(fs: &dyn KernelFs, lifted: &Lifted) -> KfsResult<()> {
    let was = lifted.was;
    // The default slice reads as a number, too; written as one it would be the task's own.
    let default = probe(fs).map_or(true, |support| support.is_default(was.slice_ns));
    let write = SchedWrite::Policy {
        policy: was.policy,
        nice: was.nice,
        reset_on_fork: was.reset_on_fork,
        slice_ns: if default { 0 } else { was.slice_ns },
    };
    let tid = lifted.task.tid;
    // Refused, its end is no less its end.
    let _ = fs.set_sched(tid, &SHRUNK);
    fs.set_sched(tid, &write)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_cgroup::RealFs;

    #[test]
    fn the_running_kernel_gives_a_turn_and_takes_it_back() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let fs = RealFs::new();
        let tid = child.id() as i32;
        let before = fs.sched(tid).unwrap();
        let first = Boost {
            turn_ns: 5_000_000,
            ..Boost::plan(&fs, &[tid])
        };
        let given = give(&fs, &first);
        let during = fs.sched(tid).unwrap();
        let undone = take(&fs, &first);
        for _ in 0..40 {
            // Asleep throughout: were any of it left, the kernel would admit no more after twenty
            // on two CPUs.
            if given.is_ok() {
                give(&fs, &first).unwrap();
            }
            assert_eq!(take(&fs, &first), Undone::default());
        }
        let after = fs.sched(tid).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        match given {
            Ok(()) => assert!(first.is_ours(&during), "{during:?}"),
            // Without privilege, or confined to some of the CPUs.
            Err(error) => assert!(error.is_denied() || error.errno == libc::EBUSY, "{error}"),
        }
        assert_eq!(undone, Undone::default());
        assert_eq!(after, before);
    }
}
