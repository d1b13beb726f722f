//! A group's class as a whole: bringing back what stood, and the way into the background and out of
//! it.

use crate::group::{CpuClass, GroupPath, GroupResult, Groups, WEIGHT_DEFAULT, WEIGHT_MIN};
use crate::sched::requeue::requeue;

/// Brings back what [`Groups::class`] saw: idle first, then weight (which the kernel refuses while
/// idle is set, and resets when idle ends).
pub fn restore_class(groups: &Groups, group: &GroupPath, saved: &CpuClass) -> GroupResult<()> {
    // Where the kernel did not say, it was not idle: groups are made so.
    let idle = saved.idle.unwrap_or(false);
    if groups.idle(group)?.is_some_and(|now| now != idle) {
        groups.set_idle(group, idle)?;
    }
    if !idle && groups.class(group)?.weight_raw != saved.weight_raw {
        groups.set_weight_raw(group, saved.weight_raw)?;
    }
    requeue(groups, group);
    Ok(())
}

/// Puts a group into the idle class (or, on kernels without one, to the least weight) or takes it
/// out.
pub fn set_yielding(groups: &Groups, group: &GroupPath, yielding: bool) -> GroupResult<()> {
    match groups.idle(group)? {
        Some(idle) if idle == yielding => Ok(()),
        // Out of the idle class, the kernel gives the default weight.
        Some(_) => groups.set_idle(group, yielding),
        None => groups.set_weight(group, if yielding { WEIGHT_MIN } else { WEIGHT_DEFAULT }),
    }
}

/// Puts a group, whose class is `was`, into the background or back: `cpu.idle`, or the least weight
/// where the kernel has no such file.
pub fn set_background(
    groups: &Groups,
    group: &GroupPath,
    was: &CpuClass,
    background: bool,
) -> GroupResult<()> {
    match (was.idle, background) {
        (None, true) => groups.set_weight(group, WEIGHT_MIN)?,
        (None, false) => groups.set_weight_raw(group, was.weight_raw)?,
        (Some(_), true) => groups.set_idle(group, true)?,
        (Some(_), false) => {
            groups.set_idle(group, false)?;
            // The kernel gives the default weight at the end of idle.
            if was.weight_raw != groups.weight_raw(WEIGHT_DEFAULT) {
                groups.set_weight_raw(group, was.weight_raw)?;
            }
        }
    }
    requeue(groups, group);
    Ok(())
}

/// Whether `found` can stand on a group of class `was` that [`set_background`] puts in and out,
/// also when its writer died between two writes.
pub fn may_be_in_or_out(groups: &Groups, was: &CpuClass, found: &CpuClass) -> bool {
    let default = groups.weight_raw(WEIGHT_DEFAULT);
    match found.idle {
        Some(true) => true,
        Some(false) => [was.weight_raw, default].contains(&found.weight_raw),
        None => [was.weight_raw, groups.weight_raw(WEIGHT_MIN)].contains(&found.weight_raw),
    }
}
