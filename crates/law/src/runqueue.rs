//! The order of a run queue, in virtual time (`law/runqueue.h`).
//!
//! [`Mean`] keeps V, the mean of the members' vruntime by weight, which a task that comes back is
//! placed by ([`place`]); [`Task`] gives its place in the order.

use crate::ffi;

pub use ffi::{
    TG_RUNQUEUE_V_START as V_START, tg_runqueue as Mean, tg_runqueue_displaces as Displaces,
    tg_runqueue_task as Task,
};

impl Mean {
    /// Virtual time, as of the last change; it never goes back.
    pub fn v(&self) -> u64 {
        // SAFETY: the pointer is valid for the call.
        unsafe { ffi::tg_runqueue_v(self) }
    }

    /// Weights of the members, added up ([`weight`]).
    pub fn weights(&self) -> u64 {
        self.weights
    }

    pub fn members(&self) -> u64 {
        self.nr_waiting + self.nr_running
    }

    pub fn running(&self) -> u64 {
        self.nr_running
    }

    /// What a task's hweight counts for on so many CPUs: no more than one CPU of them. `counted` is
    /// what it counts for as a member, or 0.
    pub fn feasible(&self, hweight: u64, counted: u64, cpus: u64) -> u64 {
        // SAFETY: as in `v`.
        unsafe { ffi::tg_runqueue_feasible(self, hweight, counted, cpus) }
    }

    /// Whether a member of that hweight is lighter than half the mean one: its slices end on time.
    pub fn is_light(&self, hweight: u64) -> bool {
        // SAFETY: as in `v`.
        unsafe { ffi::tg_runqueue_is_light(self, hweight) != 0 }
    }

    /// Brings virtual time up to now.
    pub fn settle(&mut self, now_ns: u64) {
        // SAFETY: as in `v`.
        unsafe { ffi::tg_runqueue_settle(self, now_ns) }
    }

    pub fn add(&mut self, vruntime: u64, hweight: u64) {
        // SAFETY: as in `v`.
        unsafe { ffi::tg_runqueue_add(self, vruntime, hweight) }
    }

    /// A member less; its vruntime is what was added and what it [`Self::ran`].
    pub fn sub(&mut self, vruntime: u64, hweight: u64) {
        // SAFETY: as in `v`.
        unsafe { ffi::tg_runqueue_sub(self, vruntime, hweight) }
    }

    /// A member was charged this much virtual time.
    pub fn ran(&mut self, ran_v: u64, hweight: u64) {
        // SAFETY: as in `v`.
        unsafe { ffi::tg_runqueue_ran(self, ran_v, hweight) }
    }

    /// A member runs from now on; what it runs counts before it is charged.
    pub fn starts(&mut self, now_ns: u64) {
        // SAFETY: as in `v`.
        unsafe { ffi::tg_runqueue_starts(self, now_ns) }
    }

    /// One that ran since then was charged.
    pub fn stops(&mut self, since_ns: u64) {
        // SAFETY: as in `v`.
        unsafe { ffi::tg_runqueue_stops(self, since_ns) }
    }
}

/// What each of the CPUs that run a run queue's members has to do; members that no CPU runs come
/// before all that one does.
pub fn load(weights: u64, cpus: u64) -> u64 {
    // SAFETY: numbers alone.
    unsafe { ffi::tg_runqueue_load(weights, cpus) }
}

/// Whether a CPU of a run queue (weights, CPUs, that one with them) takes a waiting member of this
/// weight out of another one (weights, CPUs).
pub fn pulls(own: (u64, u64), other: (u64, u64), weight: u64) -> bool {
    // SAFETY: numbers alone.
    unsafe { ffi::tg_runqueue_pulls(own.0, own.1, other.0, other.1, weight) != 0 }
}

impl Task {
    /// Its place in the order at virtual time `v`: the end of its slice, moved by the hint.
    pub fn deadline(&self, v: u64, period_ns: u64) -> u64 {
        // SAFETY: the pointer is valid for the call.
        unsafe { ffi::tg_runqueue_deadline(v, self, period_ns) }
    }

    /// Whether this task, which waits, displaces one that runs, whose vruntime is as of now; it has
    /// been on its CPU for `ran_ns` of its slice.
    pub fn displaces(&self, runs: &Task, v: u64, ran_ns: u64, slice_ns: u64) -> Displaces {
        // SAFETY: as in `deadline`.
        unsafe { ffi::tg_runqueue_displaces(v, self, runs, ran_ns, slice_ns) }
    }
}

/// How long a task that has just begun to run is displaced by no equal.
pub fn undisturbed_ns(slice_ns: u64) -> u64 {
    // SAFETY: takes and returns integers only.
    unsafe { ffi::tg_runqueue_undisturbed_ns(slice_ns) }
}

/// What an hweight counts for in the mean.
pub fn weight(hweight: u64) -> u64 {
    // SAFETY: takes and returns integers only.
    unsafe { ffi::tg_runqueue_weight(hweight) }
}

/// The vruntime of a member whose hweight changes: what it is owed stays the same CPU time.
pub fn reweighed(v: u64, vruntime: u64, was: u64, now: u64) -> u64 {
    // SAFETY: as in `weight`; the C function divides by hweights alone.
    unsafe { ffi::tg_runqueue_reweighed(v, vruntime, was, now.max(1)) }
}

/// Whether a waiting task of that hweight is put in order again when it comes first.
pub fn reweighs(hweight: u64, now: u64) -> bool {
    // SAFETY: as in `weight`.
    unsafe { ffi::tg_runqueue_reweighs(hweight, now) != 0 }
}

/// Whether a CPU may take a task that ran there last before the first in order.
pub fn is_near(first: u64, deadline: u64, first_slice_v: u64, slice_v: u64) -> bool {
    // SAFETY: as in `weight`.
    unsafe { ffi::tg_runqueue_is_near(first, deadline, first_slice_v, slice_v) != 0 }
}

/// Not ahead of its share by more than a quarter of its slice.
pub fn is_eligible(v: u64, vruntime: u64, slice_v: u64) -> bool {
    // SAFETY: as in `weight`.
    unsafe { ffi::tg_runqueue_eligible(v, vruntime, slice_v) != 0 }
}

/// The vruntime of a task that comes back, `lag` behind V when it left; `left_at`: its vruntime
/// then, if it left this run queue.
pub fn place(v: u64, lag: i64, left_at: Option<u64>, slice_v: u64) -> u64 {
    // SAFETY: as in `weight`.
    unsafe {
        let left_here = i32::from(left_at.is_some());
        ffi::tg_runqueue_place(v, lag, left_here, left_at.unwrap_or(0), slice_v)
    }
}
