//! How the fake's tasks are scheduled, with the kernel's own rules (`kernel/sched/syscalls.c`,
//! 6.12): a slice is clamped, 0 gives the default back, SCHED_IDLE takes none silently, a real-time
//! task refuses.

use std::collections::BTreeMap;

use super::FakeFs;
use super::process::{FakeProcess, Process};
use crate::sched_attr::{BATCH, DEADLINE, EXT, FIFO, IDLE, NORMAL, SchedWrite, TaskSched};

/// The fake's default slice: that of a machine with two CPUs.
pub const BASE_SLICE_NS: u64 = 1_400_000;

#[derive(Clone, Copy, Debug)]
struct Task {
    policy: u32,
    nice: i32,
    reset_on_fork: bool,
    custom_ns: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Sched {
    tasks: BTreeMap<i32, Task>,
    lacks_slices: bool,
    /// Who was written to, in order.
    written: Vec<i32>,
}

impl Sched {
    /// A task by its number; 0 is the caller. What was never written to is ordinary, or real-time
    /// as the process says.
    fn task(&self, procs: &BTreeMap<i32, Process>, tid: i32) -> Result<Task, i32> {
        let found = procs.values().find_map(|process| process.is_real_time(tid));
        let real_time = match tid {
            0 => false,
            _ => found.ok_or(libc::ESRCH)?,
        };
        let fresh = Task {
            policy: if real_time { FIFO } else { NORMAL },
            nice: 0,
            reset_on_fork: false,
            custom_ns: None,
        };
        Ok(self.tasks.get(&tid).copied().unwrap_or(fresh))
    }

    pub(super) fn forget(&mut self, process: &Process) {
        for tid in process.tids() {
            self.tasks.remove(&tid);
        }
    }

    pub(super) fn get(&self, procs: &BTreeMap<i32, Process>, tid: i32) -> Result<TaskSched, i32> {
        let task = self.task(procs, tid)?;
        let told = matches!(task.policy, NORMAL | BATCH | IDLE | EXT | DEADLINE);
        let slice_ns = task.custom_ns.unwrap_or(BASE_SLICE_NS);
        Ok(TaskSched {
            policy: task.policy,
            reset_on_fork: task.reset_on_fork,
            nice: task.nice,
            slice_ns: if told && !self.lacks_slices {
                slice_ns
            } else {
                0
            },
        })
    }

    pub(super) fn set(
        &mut self,
        procs: &BTreeMap<i32, Process>,
        tid: i32,
        write: &SchedWrite,
    ) -> Result<(), i32> {
        let mut task = self.task(procs, tid)?;
        match *write {
            _ if task.policy == FIFO => return Err(libc::EINVAL),
            SchedWrite::Slice { .. } if task.policy == IDLE => {}
            SchedWrite::Slice { nice, slice_ns } => {
                task.nice = nice;
                task.custom_ns = match slice_ns {
                    0 => None,
                    _ => Some(slice_ns.clamp(100_000, 100_000_000)),
                };
            }
            SchedWrite::Policy {
                policy,
                nice,
                reset_on_fork,
                slice_ns,
            } => {
                task.policy = policy;
                task.nice = nice;
                task.reset_on_fork = reset_on_fork;
                task.custom_ns = (slice_ns > 0).then_some(slice_ns);
            }
            SchedWrite::Deadline { runtime_ns, .. } => {
                task.policy = DEADLINE;
                task.reset_on_fork = true;
                task.custom_ns = Some(runtime_ns);
            }
        }
        self.tasks.insert(tid, task);
        self.written.push(tid);
        Ok(())
    }
}

impl FakeFs {
    /// Tasks that were written to since the last call, in order; 0 is the caller.
    pub fn take_sched_written(&self) -> Vec<i32> {
        std::mem::take(&mut self.state().sched.written)
    }

    /// This kernel takes no slices (before 6.12).
    pub fn without_slices(&self) {
        self.state().sched.lacks_slices = true;
    }

    /// Makes a task what a test wants; `slice_ns` is a slice of its own.
    pub fn set_task(&self, tid: i32, policy: u32, nice: i32, slice_ns: Option<u64>) {
        let task = Task {
            policy,
            nice,
            reset_on_fork: false,
            custom_ns: slice_ns,
        };
        self.state().sched.tasks.insert(tid, task);
    }

    /// A task's own slice, if it has one; its policy and nice level.
    pub fn task(&self, tid: i32) -> Option<(Option<u64>, u32, i32)> {
        let state = self.state();
        let task = state.sched.task(&state.procs, tid).ok()?;
        Some((task.custom_ns, task.policy, task.nice))
    }

    /// `parent` forks a process, in its own groups and scheduled as it is.
    pub fn fork(&self, parent: i32, child: FakeProcess) {
        let mut state = self.state();
        let pid = child.pid;
        let (at, task) = (
            state
                .procs
                .get(&parent)
                .map(|process| process.apart.get(&parent).unwrap_or(&process.at).clone()),
            state.sched.task(&state.procs, parent).ok(),
        );
        state.add_process(child);
        if let (Some(at), Some(process)) = (at, state.procs.get_mut(&pid)) {
            process.at = at;
        }
        if let Some(task) = task {
            state.sched.tasks.insert(pid, task);
        }
    }

    pub fn make_real_time(&self, tid: i32) {
        for process in self.state().procs.values_mut() {
            let mut threads = process.facts.threads.iter_mut();
            if let Some(thread) = threads.find(|thread| thread.0 == tid) {
                thread.1 = true;
            }
        }
    }

    /// `pid` starts a thread, scheduled as it is.
    pub fn add_thread(&self, pid: i32, tid: i32) {
        let mut state = self.state();
        let task = state.sched.task(&state.procs, pid).ok();
        if let Some(process) = state.procs.get_mut(&pid) {
            process.facts.threads.push((tid, false));
            if let Some(at) = process.apart.get(&pid).cloned() {
                process.apart.insert(tid, at);
            }
        }
        if let Some(task) = task {
            state.sched.tasks.insert(tid, task);
        }
    }
}
