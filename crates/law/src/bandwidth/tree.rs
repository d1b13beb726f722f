//! Bandwidth in a hierarchy (`law/bandwidth.h`): every level is charged, and a task runs only while
//! all have runtime.

use super::{Pool, Silo};
use crate::ffi;

/// The deepest tree; levels below are refused where the tree is built.
pub const DEPTH_MAX: usize = ffi::TG_BW_DEPTH_MAX as usize;

/// The ratio that counts for a child below a parent of this effective ratio: the smaller one.
/// `None` where cgroup v1 refuses it.
pub fn effective_ratio(own: u64, parent: u64, v1: bool) -> Option<u64> {
    // SAFETY: takes and returns integers only.
    match unsafe { ffi::tg_bw_effective(own, parent, i32::from(v1)) } {
        0 => None,
        ratio => Some(ratio),
    }
}

/// Charges what a task of `group` ran on one CPU to every level, and takes slices where needed.
/// `None`: all may go on; else the level nearest to the root that is out. Group 0 is the root,
/// without limit; a group whose number is out of range is too.
///
/// # Panics
/// If the three slices differ in length.
pub fn run_up(
    pools: &mut [Pool],
    silos: &mut [Silo],
    parents: &[u32],
    group: u32,
    delta_ns: u64,
    now_ns: u64,
) -> Option<u32> {
    assert!(
        pools.len() == silos.len() && silos.len() == parents.len(),
        "one silo and one parent for each pool"
    );
    let groups = u32::try_from(parents.len()).unwrap_or(0);
    // SAFETY: all three hold `groups` elements; the callee checks each index against that and keeps
    // no pointer.
    let out = unsafe {
        ffi::tg_bw_run_up(
            pools.as_mut_ptr(),
            silos.as_mut_ptr(),
            parents.as_ptr(),
            groups,
            group,
            delta_ns,
            now_ns,
        )
    };
    (out != u32::MAX).then_some(out)
}

/// May a task of `group` run on this CPU: is no level on its way up throttled?
///
/// # Panics
/// If the slices differ in length.
pub fn may_run(silos: &[Silo], parents: &[u32], group: u32) -> bool {
    assert_eq!(silos.len(), parents.len(), "one parent for each silo");
    let groups = u32::try_from(parents.len()).unwrap_or(0);
    // SAFETY: as in `run_up`.
    unsafe { ffi::tg_bw_may_run(silos.as_ptr(), parents.as_ptr(), groups, group) != 0 }
}
