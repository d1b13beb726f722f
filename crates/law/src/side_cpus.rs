//! How many CPUs side work may use, from what the headroom law allows (`law/side_cpus.h`).

use crate::headroom::HeadroomDecision;
use crate::headroom::ffi::RawDecision;

/// What side work used over one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// What the decision before allowed.
    pub before_ucpu: u64,
    /// The window's length.
    pub dt_ns: u64,
    /// CPU time that side work used in it.
    pub side_ns: u64,
    /// Tasks of side work that run or want to.
    pub members: u64,
    /// CPUs of the machine.
    pub online: u32,
}

/// Allowance that was not used, or was exceeded. Step it after each decision.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    credit_ns: i64,
    owed_ns: i64,
    open: u32,
    cpus: u32,
}

unsafe extern "C" {
    fn tg_native_side_step(
        c: *mut Credit,
        d: *const RawDecision,
        before_ucpu: u64,
        dt_ns: u64,
        side_ns: u64,
        members: u64,
        online: u32,
    );
    fn tg_native_side_owed(c: *const Credit) -> i32;
    #[cfg(test)]
    fn tg_native_side_credit_size() -> u64;
}

impl Credit {
    /// One window in; [`Self::cpus`] is the outcome.
    pub fn step(&mut self, decision: &HeadroomDecision, window: &Window) {
        let raw = RawDecision {
            allowance_ucpu: decision.allowance_ucpu,
            floor_ucpu: decision.floor_ucpu,
            capacity_ucpu: decision.capacity_ucpu,
            ..RawDecision::default()
        };
        // SAFETY: both pointers are valid for the call, and the types mirror the C structs (sizes are tested).
        unsafe {
            tg_native_side_step(
                self,
                &raw,
                window.before_ucpu,
                window.dt_ns,
                window.side_ns,
                window.members,
                window.online,
            );
        }
    }

    /// CPUs that side work may use until the next step.
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// Whether side work has waited for its floor until it must be given at main's cost.
    pub fn is_owed(&self) -> bool {
        // SAFETY: as in `step`.
        unsafe { tg_native_side_owed(self) != 0 }
    }

    /// Allowance less use, within bounds.
    pub fn credit_ns(&self) -> i64 {
        self.credit_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_has_the_size_of_the_original() {
        // SAFETY: takes nothing and returns an integer.
        let theirs = unsafe { tg_native_side_credit_size() };
        assert_eq!(theirs, size_of::<Credit>() as u64);
    }
}
