//! How the kernel schedules one task, as far as a hint needs it: `sched_getattr` and
//! `sched_setattr` (sched_setattr(2)).
//!
//! `struct sched_attr` carries its own size, and the kernel takes every version of it: the first
//! (48 bytes) is enough here, since clamps that are not mentioned stay. Without
//! `SCHED_FLAG_KEEP_POLICY` a write would also set policy and reset-on-fork to what was read a
//! moment ago; with it the kernel keeps both, and refuses (EINVAL) a task that has become real-time
//! meanwhile. The nice level has no such flag: it is written as it was read.

use serde::{Deserialize, Serialize};

pub const NORMAL: u32 = 0;
pub const FIFO: u32 = 1;
pub const BATCH: u32 = 3;
/// SCHED_IDLE: the kernel gives such a task no slice of its own, and does not say so.
pub const IDLE: u32 = 5;
pub const DEADLINE: u32 = 6;
/// SCHED_EXT: in the fair class while no BPF scheduler is loaded.
pub const EXT: u32 = 7;

const FLAG_RESET_ON_FORK: u64 = 0x01;
const FLAG_KEEP_POLICY: u64 = 0x08;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSched {
    pub policy: u32,
    pub reset_on_fork: bool,
    pub nice: i32,
    /// Its slice, its own or the default: the kernel does not tell them apart. 0 before 6.12. Of a
    /// deadline task, its turn.
    pub slice_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedWrite {
    /// A slice of its own; 0 gives it the default again. Policy and reset-on-fork stay.
    Slice {
        nice: i32,
        /// The slice; the kernel clamps it to 0.1 to 100 ms.
        slice_ns: u64,
    },
    Policy {
        policy: u32,
        nice: i32,
        reset_on_fork: bool,
        slice_ns: u64,
    },
    /// A turn of so much CPU in each period, before all of the fair class; what it forks is
    /// ordinary.
    Deadline { runtime_ns: u64, period_ns: u64 },
}

/// `struct sched_attr`, first version (include/uapi/linux/sched/types.h).
#[repr(C)]
#[derive(Default)]
struct Raw {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

const SIZE: u32 = 48;
const _: () = assert!(size_of::<Raw>() == SIZE as usize);

fn errno() -> i32 {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

/// Asks the kernel about a task; 0 is the calling thread.
pub(crate) fn get(tid: i32) -> Result<TaskSched, i32> {
    let mut raw = Raw::default();
    // SAFETY: the kernel writes at most SIZE bytes to `raw`, which is that long.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &mut raw, SIZE, 0) };
    if result != 0 {
        return Err(errno());
    }
    Ok(TaskSched {
        policy: raw.policy,
        reset_on_fork: raw.flags & FLAG_RESET_ON_FORK != 0,
        nice: raw.nice,
        slice_ns: raw.runtime_ns,
    })
}

/// Writes to a task; 0 is the calling thread.
pub(crate) fn set(tid: i32, write: &SchedWrite) -> Result<(), i32> {
    let mut raw = match *write {
        SchedWrite::Slice { nice, slice_ns } => Raw {
            size: SIZE,
            flags: FLAG_KEEP_POLICY,
            nice,
            runtime_ns: slice_ns,
            ..Raw::default()
        },
        SchedWrite::Policy {
            policy,
            nice,
            reset_on_fork,
            slice_ns,
        } => Raw {
            size: SIZE,
            policy,
            flags: if reset_on_fork { FLAG_RESET_ON_FORK } else { 0 },
            nice,
            runtime_ns: slice_ns,
            ..Raw::default()
        },
        SchedWrite::Deadline {
            runtime_ns,
            period_ns,
        } => Raw {
            size: SIZE,
            policy: DEADLINE,
            flags: FLAG_RESET_ON_FORK,
            runtime_ns,
            deadline_ns: period_ns,
            period_ns,
            ..Raw::default()
        },
    };
    // SAFETY: `raw` is a whole sched_attr of the size that it names, and the kernel only reads it
    // (it writes the size it knows on E2BIG, to a field that is ours).
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &mut raw, 0) };
    if result == 0 { Ok(()) } else { Err(errno()) }
}
