//! Waiting tasks of a group whose weight changed, put back into the queue.
//!
//! From Linux 7.3 on there is one queue of tasks on each CPU and none of groups: a task competes
//! with the product of the weights above it, and that is worked out as the task enters the queue,
//! is picked, or runs at a tick (`reweight_eevdf` in kernel/sched/fair.c). A task that waits keeps
//! what it had. One that waits with the idle class's weight (3 of 1024) has its turn 341 slices
//! later, up to a second, whatever its group is by then: a soft cap of 200 ‰ beside a hog came to
//! 29.
//!
//! A write of the slice that a task has takes it out of the queue and puts it back, which is all
//! that is wanted of it.

use std::sync::OnceLock;

use super::{BATCH, EXT, NORMAL, SchedWrite, Support, probe, tasks};
use crate::discover::{kernel_release, parse_release};
use crate::group::{GroupPath, Groups};
use crate::{KernelFs, KfsResult};

/// The first kernel whose waiting tasks keep their weight.
const SINCE: (u32, u32) = (7, 3);
/// So many tasks at a time: two calls each, 0.1 ms of the loop's time in all. Those beyond have
/// their turn as the kernel comes to them, which with so many waiting is soon for some of them.
const TASKS_MAX: usize = 128;

/// After the group's weight changed: those of its tasks that wait are to wait with the new one.
/// Says how many were put into the queue again; none where the kernel needs no help. A task that
/// cannot be (it has exited, it is real-time) is left out.
pub fn requeue(groups: &Groups, group: &GroupPath) -> usize {
    let fs = &**groups.fs();
    if !keeps_weights(fs) {
        return 0;
    }
    let Ok(support) = probe(fs) else { return 0 };
    let Ok(found) = tasks::list(groups, group, tasks::Whose::Group, &[], TASKS_MAX) else {
        return 0;
    };
    let requeued = |tid: &&i32| matches!(one(fs, **tid, &support), Ok(true));
    found.tids.iter().filter(requeued).count()
}

/// The same for one task; false for one that has no slice.
fn one(fs: &dyn KernelFs, tid: i32, support: &Support) -> KfsResult<bool> {
    let now = fs.sched(tid)?;
    if !matches!(now.policy, NORMAL | BATCH | EXT) {
        return Ok(false);
    }
    let write = |slice_ns| {
        let nice = now.nice;
        fs.set_sched(tid, &SchedWrite::Slice { nice, slice_ns })
    };
    // The kernel does nothing for a slice that a task has, but for 0, which is the default's name.
    write(0)?;
    if !support.is_default(now.slice_ns) {
        write(now.slice_ns)?;
    }
    Ok(true)
}

fn keeps_weights(fs: &dyn KernelFs) -> bool {
    static RUNNING: OnceLock<bool> = OnceLock::new();
    let read = || parse_release(&kernel_release(fs)).is_some_and(|release| release >= SINCE);
    match fs.is_machine() {
        true => *RUNNING.get_or_init(read),
        false => read(),
    }
}
