//! Rate caps: a hard and a soft bound on CPU use, as token buckets (`law/cap.h`, `law/cap.md`).
//!
//! A run borrows from its bucket at its start and returns what it has left at its end. A task runs
//! while its bucket is above zero; empty, it is parked (hard) or put in the background (soft) until
//! it is above zero again. With [`Scope::Group`] one bucket counts for all; with the others each
//! process or task has its own, and a [`Family`] keeps what those that exited still owe.

use crate::ffi;

pub use ffi::{
    TG_CAP_IS_EXITING as IS_EXITING, TG_CAP_IS_KTHREAD as IS_KTHREAD,
    TG_CAP_IS_NEW_PROCESS as IS_NEW_PROCESS, TG_CAP_IS_RT as IS_RT, TG_CAP_NEVER as NEVER_NS,
    TG_CAP_NONE as NONE, TG_CAP_ONE_CPU as ONE_CPU_PPT, TG_CAP_RATE_MAX as RATE_MAX_PPT,
    tg_cap as Cap, tg_cap_bucket as Bucket, tg_cap_family as Family, tg_cap_loan as Loan,
    tg_cap_state as State, tg_cap_terms as Terms,
};

#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    #[default]
    Group = ffi::TG_CAP_GROUP,
    Process = ffi::TG_CAP_PROCESS,
    Task = ffi::TG_CAP_TASK,
}

impl Terms {
    /// Terms with any scope; `None` is no cap.
    pub fn new(hard: Option<u32>, soft: Option<u32>, scope: Scope, granularity_ns: u64) -> Self {
        Self {
            hard_ppt: hard.unwrap_or(NONE),
            soft_ppt: soft.unwrap_or(NONE),
            scope: scope as u32,
            pad: 0,
            granularity_ns,
        }
    }

    pub fn group(hard: Option<u32>, soft: Option<u32>, granularity_ns: u64) -> Self {
        Self::new(hard, soft, Scope::Group, granularity_ns)
    }
}

impl Cap {
    /// Whether anything is capped. Where not, nothing else here needs to be called.
    #[inline]
    pub fn limits(&self) -> bool {
        self.on != 0
    }

    /// Whom the bucket counts for.
    pub fn scope(&self) -> Scope {
        match self.scope {
            ffi::TG_CAP_PROCESS => Scope::Process,
            ffi::TG_CAP_TASK => Scope::Task,
            _ => Scope::Group,
        }
    }

    /// New terms. What was filled, used and owed so far stands.
    pub fn set(&mut self, terms: &Terms, now_ns: u64) {
        // SAFETY: the pointers are valid for the call.
        unsafe { ffi::tg_cap_set(self, terms, now_ns) }
    }

    /// Charges what a task used up to now that has borrowed nothing. `background`: it ran because
    /// nothing else wanted the CPU.
    pub fn charge(&mut self, used_ns: u64, now_ns: u64, background: bool, is: u32) {
        self.charge_run(&mut Loan::default(), used_ns, now_ns, background, is);
    }

    /// The same for a run that has borrowed: its loan is used first.
    pub fn charge_run(
        &mut self,
        loan: &mut Loan,
        used_ns: u64,
        now_ns: u64,
        background: bool,
        is: u32,
    ) {
        if self.limits() {
            // SAFETY: as in `set`.
            unsafe { ffi::tg_cap_charge(self, loan, used_ns, now_ns, i32::from(background), is) }
        }
    }

    /// A run ends: what it has left of its loan goes back. Charge it first.
    pub fn repay(&mut self, loan: &mut Loan) {
        // SAFETY: as in `set`.
        unsafe { ffi::tg_cap_return(self, loan) }
    }

    /// A run starts or goes on: it gives back what it has left of its loan and borrows again. How
    /// long it may run before its CPU looks again; 0 if it may not, [`NEVER_NS`] where no bucket
    /// bounds it. A loan is `lend_ns`, or what there is, and at least `least_ns`.
    pub fn lend(
        &mut self,
        loan: &mut Loan,
        now_ns: u64,
        background: bool,
        least_ns: u64,
        lend_ns: u64,
    ) -> u64 {
        // SAFETY: as in `set`.
        unsafe { ffi::tg_cap_lend(self, loan, now_ns, i32::from(background), least_ns, lend_ns) }
    }

    /// What a task under this cap may do now. `is` says what the task is ([`IS_RT`] and so on).
    pub fn state(&mut self, family: &mut Family, now_ns: u64, is: u32) -> State {
        if !self.limits() {
            return State::Run;
        }
        // SAFETY: as in `set`.
        unsafe { ffi::tg_cap_state(self, family, now_ns, is) }
    }

    /// When the state can next be better: the bucket that holds the task back then has `want_ns` (1
    /// is the earliest). 0 where nothing holds it back. Call it after [`Self::state`], which fills
    /// the buckets, and look again then.
    pub fn ready_at_ns(&self, family: &Family, want_ns: u64) -> u64 {
        // SAFETY: as in `set`.
        unsafe { ffi::tg_cap_ready_at_ns(self, family, want_ns) }
    }

    /// A task under this cap forks: the child's own cap, or `None` where it shares this one.
    pub fn fork(&mut self, now_ns: u64, is: u32) -> Option<Self> {
        let mut child = Self::default();
        // SAFETY: as in `set`.
        (unsafe { ffi::tg_cap_fork(self, &mut child, now_ns, is) } != 0).then_some(child)
    }

    /// The last task of a bucket of its own exits or moves away. Charge it first. A group's bucket
    /// stays as it is.
    pub fn leave(&mut self, family: &mut Family, now_ns: u64) {
        // SAFETY: as in `set`.
        unsafe { ffi::tg_cap_leave(self, family, now_ns) }
    }
}
