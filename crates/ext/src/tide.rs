//! The headroom's ledger, as the scheduler's timer left it.

use serde::Serialize;
use tidegate_law::Reason;

use crate::error::ExtError;
use crate::intf::Tide;
use crate::load::Ext;
use crate::object::get;

/// What side work may use, and why. Times are since the scheduler was loaded and only while there was side work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TideStats {
    /// Why the allowance is what it is.
    pub reason: &'static str,
    /// What side work may use from the last step on, in millionths of a CPU, as are those below.
    pub allowance_ucpu: u64,
    /// What it gets in any case: the tolerance, or what the watchdog makes necessary for so many tasks, if that is more.
    pub floor_ucpu: u64,
    /// The machine.
    pub capacity_ucpu: u64,
    /// Idle to keep.
    pub asked_ucpu: u64,
    /// Idle kept, a mean of about a second.
    pub idle_ucpu: u64,
    /// Main's use, as estimated.
    pub main_ucpu: u64,
    /// Side work's use, a mean of about a second.
    pub side_ucpu: u64,
    /// What was learnt of idle kept beyond or short of what was asked.
    pub trim_ucpu: i64,
    /// CPUs that side work may use at this moment, that run it, and tasks of it that wait.
    pub cpus: u32,
    /// See `cpus`.
    pub running: u32,
    /// See `cpus`.
    pub waiting: u32,
    /// Steps of main that were seen; wraps.
    pub alarms: u32,
    /// Steps of the law.
    pub steps: u64,
    /// The longest of them.
    pub longest_ns: u64,
    /// Stretches that side work had at main's cost.
    pub forced: u64,
    /// CPU time that there was.
    pub capacity_ns: u64,
    /// Of it idle.
    pub idle_ns: u64,
    /// Of it side work's.
    pub side_ns: u64,
    /// Time in which main left side work no more than the floor.
    pub floor_ns: u64,
}

impl From<&Tide> for TideStats {
    fn from(tide: &Tide) -> TideStats {
        TideStats {
            reason: Reason::from_number(tide.reason).as_str(),
            allowance_ucpu: tide.allowance_ucpu,
            floor_ucpu: tide.floor_ucpu,
            capacity_ucpu: tide.capacity_ucpu,
            asked_ucpu: tide.asked_ucpu,
            idle_ucpu: tide.idle_ucpu,
            main_ucpu: tide.main_ucpu,
            side_ucpu: tide.side_ucpu,
            trim_ucpu: tide.trim_ucpu,
            cpus: tide.cpus,
            running: tide.running,
            waiting: tide.waiting,
            alarms: tide.alarms,
            steps: tide.steps,
            longest_ns: tide.longest_ns,
            forced: tide.forced,
            capacity_ns: tide.capacity_ns,
            idle_ns: tide.idle_ns,
            side_ns: tide.side_ns,
            floor_ns: tide.floor_ns,
        }
    }
}

impl Ext {
    /// The headroom's ledger; None: there has been no side work.
    pub fn tide(&self) -> Result<Option<TideStats>, ExtError> {
        let tide = get::<Tide>(&self.tides, &0_u32.to_ne_bytes())?;
        Ok(tide
            .filter(|tide| tide.steps > 0)
            .as_ref()
            .map(TideStats::from))
    }
}
