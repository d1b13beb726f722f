//! How many CPUs side work may use, from what the headroom law allows (`law/side_cpus.h`).

use crate::HeadroomDecision;
use crate::ffi;

pub use ffi::tg_side_credit as Credit;

/// What side work used over one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    pub before_ucpu: u64,
    pub dt_ns: u64,
    /// CPU time that side work used in it.
    pub side_ns: u64,
    /// Tasks of side work that run or want to.
    pub members: u64,
    /// CPUs of the machine.
    pub online: u32,
}

impl Credit {
    /// One window in; [`Self::cpus`] is the outcome.
    pub fn step(&mut self, decision: &HeadroomDecision, window: &Window) {
        // SAFETY: the pointers are valid for the call.
        unsafe {
            ffi::tg_side_step(
                self,
                decision,
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
        unsafe { ffi::tg_side_owed(self) != 0 }
    }

    /// Allowance less use, within bounds.
    pub fn credit_ns(&self) -> i64 {
        self.credit_ns
    }
}
