//! Hierarchical weights, flattened (`law/hweight.h`): what a task is worth in its run queue, and
//! CPU time as virtual time.
//!
//! A tree of groups is the caller's: a [`Group`] each, whose [`Group::update`] says what is to be
//! done in the parent, up to the root; a task's hweight is its own weight with [`SHIFT`] fractional
//! bits, taken [`up`] from group to group.

use crate::ffi;

pub use ffi::{
    TG_HWEIGHT_SHIFT as SHIFT, TG_WEIGHT_IDLE as WEIGHT_IDLE, tg_hweight_group as Group,
};

/// The hweight of a task of nice 0, alone in the root.
pub const ONE: u64 = ffi::TG_HWEIGHT_ONE as u64;
/// The smallest hweight, which keeps virtual times short.
pub const MIN: u64 = ffi::TG_HWEIGHT_MIN as u64;

impl Group {
    /// An entity of this weight comes (`by` = 1), goes (-1), or changes by it (0) in the group,
    /// which weighs `own`; `Some`: the same for the group's parent.
    pub fn update(&mut self, own: u32, mut weight: i64, mut by: i32) -> Option<(i64, i32)> {
        let (mut before, mut now) = (0, 0);
        // SAFETY: the pointers are valid for the calls.
        let changed = unsafe {
            ffi::tg_hweight_update(self, own, weight, by, &mut before, &mut now);
            ffi::tg_hweight_above(before, now, &mut weight, &mut by)
        };
        (changed != 0).then_some((weight, by))
    }

    /// Weights of what competes in it, added up.
    pub fn active(&self) -> i64 {
        self.active
    }

    pub fn entities(&self) -> i32 {
        self.entities
    }
}

/// Of a nice level, -20 to 19.
pub fn nice_weight(nice: i32) -> u32 {
    // SAFETY: takes and returns integers only.
    unsafe { ffi::tg_nice_weight((nice + 20).cast_unsigned()) }
}

pub fn group_weight(cgroup_weight: u32) -> u32 {
    // SAFETY: as in `nice_weight`.
    unsafe { ffi::tg_group_weight(cgroup_weight) }
}

/// What an hweight of an entity of weight `own` becomes a level up, past a group of this weight
/// with `active` in it.
pub fn up(hweight: u64, group_weight: u32, active: i64, own: u64) -> u64 {
    // SAFETY: as in `nice_weight`.
    unsafe { ffi::tg_hweight_up(hweight, group_weight, active, own) }
}

/// CPU time as virtual time at an hweight that is not 0; rounded up, so that no run is free.
pub fn virtual_ns(ran_ns: u64, hweight: u64) -> u64 {
    // SAFETY: as in `nice_weight`; the C function divides by hweight alone.
    unsafe { ffi::tg_virtual_ns(ran_ns, hweight.max(1)) }
}

/// Virtual time from `vruntime` to the `end` of a slice as CPU time; 0: the slice is over.
pub fn slice_left_ns(vruntime: u64, end: u64, hweight: u64) -> u64 {
    // SAFETY: as in `nice_weight`.
    unsafe { ffi::tg_slice_left_ns(vruntime, end, hweight) }
}
