//! Rate caps: a hard and a soft bound on CPU use, as token buckets (`law/cap.h`, `law/cap.md`).
//!
//! A run borrows from its bucket at its start and returns what it has left at its end. A task runs while its bucket is above
//! zero; empty, it is parked (hard) or put in the background (soft) until it is above zero again. With [`Scope::Group`] one bucket counts for all; with the others each process or task has its own, and a
//! [`Family`] keeps what those that exited still owe.
//!
//! ```
//! use tidegate_law::cap::{Cap, Family, Loan, State, Terms};
//! let mut gate = Cap::default(); // no cap
//! let mut family = Family::default();
//! gate.set(&Terms::group(Some(250), None, 4_000_000), 0);
//! assert_eq!(gate.state(&mut family, 0, 0), State::Parked); // a new bucket is empty
//! assert_eq!(gate.ready_at_ns(&family, 1), 4); // 1 ns at a quarter of a CPU
//! assert_eq!(gate.state(&mut family, 4, 0), State::Run);
//! let mut loan = Loan::default();
//! let run_ns = gate.lend(&mut loan, 4, false, 1_000, 1_000_000); // at least 1 us, at most 1 ms where there is so much
//! assert_eq!(run_ns, 1_000);
//! gate.charge_run(&mut loan, 1_000, 1_004, false, 0);
//! gate.repay(&mut loan);
//! assert_eq!(gate.state(&mut family, 1_004, 0), State::Parked);
//! ```

/// In [`Terms`]: no such cap.
pub const NONE: u32 = u32::MAX;
/// One CPU, in parts per thousand.
pub const ONE_CPU_PPT: u32 = 1000;
/// The largest rate: 8192 CPUs.
pub const RATE_MAX_PPT: u32 = 8_192_000;
/// "Never", as a time.
pub const NEVER_NS: u64 = u64::MAX;

/// The task is of a real-time or deadline class: neither parked nor charged.
pub const IS_RT: u32 = 1;
/// The task is a kernel thread: neither parked nor charged.
pub const IS_KTHREAD: u32 = 2;
/// The task is exiting: not parked, but charged.
pub const IS_EXITING: u32 = 4;
/// For [`Cap::fork`]: the child is a process, not a thread.
pub const IS_NEW_PROCESS: u32 = 8;

/// Whom one bucket counts for.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The whole group.
    #[default]
    Group = 0,
    /// One process.
    Process = 1,
    /// One task.
    Task = 2,
}

/// What a task under a cap may do. Of several caps that apply, the largest counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Run as if there were no cap.
    #[default]
    Run,
    /// Run only where nothing else wants the CPU.
    Background,
    /// Not run.
    Parked,
}

/// What is asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Parts per thousand of one CPU, 1 or more, or [`NONE`].
    pub hard_ppt: u32,
    /// Parts per thousand of one CPU, 0 (always background) or more, or [`NONE`].
    pub soft_ppt: u32,
    scope: u32,
    pad: u32,
    /// The longest time between two checks of a CPU that runs capped tasks.
    pub granularity_ns: u64,
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

    /// Terms for a whole group.
    pub fn group(hard: Option<u32>, soft: Option<u32>, granularity_ns: u64) -> Self {
        Self::new(hard, soft, Scope::Group, granularity_ns)
    }
}

/// One token bucket.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Filled up to this time.
    pub last_ns: u64,
    /// What may be used; debt where negative.
    pub level_ns: i64,
    /// The most it can hold.
    pub depth_ns: u64,
    /// What runs have borrowed and not used yet.
    pub lent_ns: u64,
    /// How fast it fills.
    pub rate_ppt: u32,
    /// Thousandths of a nanosecond above the level.
    pub carry_ppt: u32,
}

/// The caps of a gate, or of one task or process in it. The default is no cap.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cap {
    /// The hard cap's bucket.
    pub hard: Bucket,
    /// The soft cap's bucket.
    pub soft: Bucket,
    on: u32,
    scope: u32,
}

/// What tasks with buckets of their own left unpaid when they went; one for each gate.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Family {
    /// Of hard buckets.
    pub hard_debt_ns: u64,
    /// Of soft buckets.
    pub soft_debt_ns: u64,
}

/// What is left of what one run has borrowed; the default: nothing.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Loan {
    /// Of the hard bucket.
    pub hard_ns: u32,
    /// Of the soft bucket.
    pub soft_ns: u32,
}

unsafe extern "C" {
    fn tg_native_cap_set(c: *mut Cap, t: *const Terms, now_ns: u64);
    fn tg_native_cap_charge(
        c: *mut Cap,
        loan: *mut Loan,
        used_ns: u64,
        now_ns: u64,
        background: i32,
        is: u32,
    );
    fn tg_native_cap_return(c: *mut Cap, loan: *mut Loan);
    fn tg_native_cap_lend(
        c: *mut Cap,
        loan: *mut Loan,
        now_ns: u64,
        background: i32,
        least_ns: u64,
        lend_ns: u64,
    ) -> u64;
    fn tg_native_cap_state(c: *mut Cap, f: *mut Family, now_ns: u64, is: u32) -> u32;
    fn tg_native_cap_ready_at_ns(c: *const Cap, f: *const Family, want_ns: u64) -> u64;
    fn tg_native_cap_fork(parent: *mut Cap, child: *mut Cap, now_ns: u64, is: u32) -> i32;
    fn tg_native_cap_leave(c: *mut Cap, f: *mut Family, now_ns: u64);
    #[cfg(test)]
    fn tg_native_cap_size(which: u32) -> u64;
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
            1 => Scope::Process,
            2 => Scope::Task,
            _ => Scope::Group,
        }
    }

    /// New terms. What was filled, used and owed so far stands.
    pub fn set(&mut self, terms: &Terms, now_ns: u64) {
        // SAFETY: both pointers are valid for the call, and the types mirror the C structs (sizes are tested).
        unsafe { tg_native_cap_set(self, terms, now_ns) }
    }

    /// Charges what a task used up to now that has borrowed nothing. `background`: it ran because nothing else wanted the CPU.
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
            unsafe { tg_native_cap_charge(self, loan, used_ns, now_ns, i32::from(background), is) }
        }
    }

    /// A run ends: what it has left of its loan goes back. Charge it first.
    pub fn repay(&mut self, loan: &mut Loan) {
        // SAFETY: as in `set`.
        unsafe { tg_native_cap_return(self, loan) }
    }

    /// A run starts or goes on: it gives back what it has left of its loan and borrows again. How long it may run
    /// before its CPU looks again; 0 if it may not, [`NEVER_NS`] where no bucket bounds it. A loan is `lend_ns`, or what there
    /// is, and at least `least_ns`.
    pub fn lend(
        &mut self,
        loan: &mut Loan,
        now_ns: u64,
        background: bool,
        least_ns: u64,
        lend_ns: u64,
    ) -> u64 {
        // SAFETY: as in `set`.
        unsafe { tg_native_cap_lend(self, loan, now_ns, i32::from(background), least_ns, lend_ns) }
    }

    /// What a task under this cap may do now. `is` says what the task is ([`IS_RT`] and so on).
    pub fn state(&mut self, family: &mut Family, now_ns: u64, is: u32) -> State {
        if !self.limits() {
            return State::Run;
        }
        // SAFETY: as in `set`.
        match unsafe { tg_native_cap_state(self, family, now_ns, is) } {
            0 => State::Run,
            1 => State::Background,
            _ => State::Parked,
        }
    }

    /// When the state can next be better: the bucket that holds the task back then has `want_ns` (1 is the earliest). 0 where
    /// nothing holds it back. Call it after [`Self::state`], which fills the buckets, and look again then.
    pub fn ready_at_ns(&self, family: &Family, want_ns: u64) -> u64 {
        // SAFETY: as in `set`.
        unsafe { tg_native_cap_ready_at_ns(self, family, want_ns) }
    }

    /// A task under this cap forks: the child's own cap, or `None` where it shares this one.
    pub fn fork(&mut self, now_ns: u64, is: u32) -> Option<Self> {
        let mut child = Self::default();
        // SAFETY: as in `set`.
        (unsafe { tg_native_cap_fork(self, &mut child, now_ns, is) } != 0).then_some(child)
    }

    /// The last task of a bucket of its own exits or moves away. Charge it first. A group's bucket stays as it is.
    pub fn leave(&mut self, family: &mut Family, now_ns: u64) {
        // SAFETY: as in `set`.
        unsafe { tg_native_cap_leave(self, family, now_ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_have_the_sizes_of_the_originals() {
        let ours = [
            size_of::<Terms>(),
            size_of::<Bucket>(),
            size_of::<Cap>(),
            size_of::<Family>(),
            size_of::<Loan>(),
        ];
        for (which, size) in (0u32..).zip(ours) {
            // SAFETY: takes and returns integers only.
            assert_eq!(unsafe { tg_native_cap_size(which) }, size as u64, "{which}");
        }
    }
}
