//! Bandwidth: a group's CPU time in each period, handed to CPUs in slices (`law/bandwidth.h`,
//! `law/bandwidth.md`).
//!
//! A [`Pool`] per limited group, a [`Silo`] per group and CPU. On a CPU: [`Pool::run`] for what
//! ran; on [`Verdict::Out`] stop the group there with [`Pool::throttle`]; when nothing is left to
//! run, [`Pool::give_back`]. At [`Pool::turnover_ns`], while anything is throttled,
//! [`Pool::turnover`], then [`Pool::distribute`] over the throttled silos, oldest first, until
//! [`Pool::runtime_ns`] is 0. A pool of [`Pool::kernel`] does as the stock kernel: its timer is the
//! caller's ([`Pool::active`]), each turnover handled adds one quota, and a change is
//! [`Pool::set_kernel`].

use std::mem::MaybeUninit;

use crate::ffi;

pub use ffi::{
    TG_BW_NONE as NONE, TG_BW_SLACK_WAIT_NS as SLACK_WAIT_NS, tg_bw_pool as Pool,
    tg_bw_silo as Silo, tg_bw_terms as Terms, tg_bw_verdict as Verdict,
};

/// How much a silo takes at once, unless told otherwise.
pub const SLICE_NS: u64 = 5_000_000;

impl Terms {
    /// A quota a period, with the default slice and no burst.
    pub const fn new(quota_ns: u64, period_ns: u64) -> Self {
        Self {
            quota_ns,
            period_ns,
            burst_ns: 0,
            slice_ns: SLICE_NS,
        }
    }

    pub const fn burst(self, burst_ns: u64) -> Self {
        Self { burst_ns, ..self }
    }

    pub const fn slice(self, slice_ns: u64) -> Self {
        Self { slice_ns, ..self }
    }
}

/// What `cpu.stat` tells of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Periods that ended while the group was active.
    pub nr_periods: u64,
    /// Those of them at whose end some CPU was throttled.
    pub nr_throttled: u64,
    /// Time throttled, summed over CPUs.
    pub throttled_ns: u64,
    /// Periods in which more than the quota was taken.
    pub nr_bursts: u64,
    pub burst_ns: u64,
    /// Lost in silos whose slices expired (never by the law).
    pub expired_ns: u64,
}

impl Silo {
    /// What is left to run; below 0 a debt.
    pub fn remaining_ns(&self) -> i64 {
        self.remaining_ns
    }

    /// Is the group stopped on this CPU, at this level?
    pub fn is_throttled(&self) -> bool {
        self.throttled != 0
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl Pool {
    /// A pool without limit, that keeps the law.
    pub fn new() -> Self {
        Self::with_flags(0, 0)
    }

    /// A pool without limit, that does as the stock kernel does. Its timer's grid goes through
    /// `phase_ns`; `expire`: as in kernels before de53fd7aed, what a silo holds is void after the
    /// turnover.
    pub fn kernel(phase_ns: u64, expire: bool) -> Self {
        Self::with_flags(
            ffi::TG_BW_KERNEL | if expire { ffi::TG_BW_EXPIRE } else { 0 },
            phase_ns,
        )
    }

    /// A pool of which a silo keeps only this much when it goes idle: tests walk every state of
    /// machines that count in single ns.
    #[doc(hidden)]
    pub fn keeping(self, keep_ns: u32) -> Self {
        Self { keep_ns, ..self }
    }

    fn with_flags(flags: u32, phase_ns: u64) -> Self {
        let mut pool = MaybeUninit::zeroed();
        // SAFETY: here and in all methods below: the pointers come from references and are valid
        // for the call, which keeps none of them; every function is total. Zeros are a value of the
        // struct.
        unsafe {
            ffi::tg_bw_init(pool.as_mut_ptr(), flags, phase_ns);
            pool.assume_init()
        }
    }

    /// What the group is limited to, as the law clamped it.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    pub fn is_limited(&self) -> bool {
        self.terms.quota_ns != NONE
    }

    pub fn runtime_ns(&self) -> u64 {
        self.runtime_ns
    }

    pub fn turnover_ns(&self) -> u64 {
        self.turnover_ns
    }

    /// On how many CPUs the group is throttled now.
    pub fn throttled(&self) -> u32 {
        self.throttled
    }

    /// Of a [`Self::kernel`] pool: does the period timer run? It fires at [`Self::turnover_ns`]; a
    /// take or a write starts it.
    pub fn active(&self) -> bool {
        // SAFETY: see `with_flags`.
        unsafe { ffi::tg_bw_active(self) != 0 }
    }

    pub fn stat(&self) -> Stat {
        Stat {
            nr_periods: self.nr_periods,
            nr_throttled: self.nr_throttled,
            throttled_ns: self.throttled_ns,
            nr_bursts: self.nr_bursts,
            burst_ns: self.burst_ns,
            expired_ns: self.expired_ns,
        }
    }

    /// Catches up with the periods that ended by now, and says how many. Distribute afterwards.
    pub fn turnover(&mut self, now_ns: u64) -> u64 {
        // SAFETY: see `with_flags`.
        unsafe { ffi::tg_bw_turnover(self, now_ns) }
    }

    /// Charges the silo alone; true: it has something left.
    pub fn charge(&self, silo: &mut Silo, delta_ns: u64) -> bool {
        // SAFETY: see `with_flags`.
        unsafe { ffi::tg_bw_charge(self, silo, delta_ns) != 0 }
    }

    /// Fills a silo that is used up to `want_ns`, as far as the pool has it.
    pub fn take(&mut self, silo: &mut Silo, want_ns: u64, now_ns: u64) -> Verdict {
        // SAFETY: see `with_flags`.
        unsafe { ffi::tg_bw_take(self, silo, want_ns, now_ns) }
    }

    /// Charges what ran, and takes a slice when the silo is used up. A throttled silo takes
    /// nothing.
    pub fn run(&mut self, silo: &mut Silo, delta_ns: u64, now_ns: u64) -> Verdict {
        // SAFETY: see `with_flags`.
        unsafe { ffi::tg_bw_run(self, silo, delta_ns, now_ns) }
    }

    /// Stops the group on this CPU unless the pool has something after all; true: it is throttled.
    pub fn throttle(&mut self, silo: &mut Silo, now_ns: u64) -> bool {
        // SAFETY: see `with_flags`.
        unsafe { ffi::tg_bw_throttle(self, silo, now_ns) != 0 }
    }

    /// Pays a throttled silo's debt and one ns, as far as the pool has it; true: it may run.
    pub fn distribute(&mut self, silo: &mut Silo, now_ns: u64) -> bool {
        // SAFETY: see `with_flags`.
        unsafe { ffi::tg_bw_distribute(self, silo, now_ns) != 0 }
    }

    /// The group has nothing runnable on this CPU: all but 1 ms goes back. Says how much.
    pub fn give_back(&mut self, silo: &mut Silo) -> u64 {
        // SAFETY: see `with_flags`.
        unsafe { ffi::tg_bw_return(self, silo) }
    }

    /// Changes the terms: debts stay, and a change back and forth gains nothing. Distribute
    /// afterwards.
    pub fn set(&mut self, terms: &Terms, now_ns: u64) {
        // SAFETY: see `with_flags`.
        unsafe { ffi::tg_bw_set(self, terms, now_ns) }
    }

    /// Changes the terms as a write of the kernel's file does: a refill. Pass every silo through
    /// [`Self::forgive`] afterwards.
    pub fn set_kernel(&mut self, terms: &Terms, now_ns: u64) {
        // SAFETY: see `with_flags`.
        unsafe { ffi::tg_bw_set_kernel(self, terms, now_ns) }
    }

    /// What such a write does to each silo: what it held or owed is forgotten, and it may run.
    pub fn forgive(&mut self, silo: &mut Silo, now_ns: u64) {
        // SAFETY: see `with_flags`.
        unsafe { ffi::tg_bw_forgive(self, silo, now_ns) }
    }

    /// After [`Self::give_back`] gave something: is the kernel's slack timer, if it does not run,
    /// to fire in [`SLACK_WAIT_NS`]?
    pub fn slack_wanted(&self, now_ns: u64) -> bool {
        // SAFETY: see `with_flags`.
        unsafe { ffi::tg_bw_slack_wanted(self, now_ns) != 0 }
    }

    /// The slack timer has fired: distribute now?
    pub fn slack_due(&self, now_ns: u64) -> bool {
        // SAFETY: see `with_flags`.
        unsafe { ffi::tg_bw_slack_due(self, now_ns) != 0 }
    }
}
