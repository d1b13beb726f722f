//! The headroom controller's state, as its timer published it.

use libbpf_rs::MapCore;
use serde::Serialize;
use tidegate_law::Reason;

use crate::error::SchedExtError;
use crate::intf::HeadroomReport;
use crate::object::get;

/// What side work may use, and why. Times are since the scheduler was loaded and only while there
/// was side work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HeadroomStats {
    pub reason: Reason,
    /// What side work may use from the last step on, in millionths of a CPU, as are those below.
    pub allowance_ucpu: u64,
    /// What it gets in any case: the tolerance, or what the watchdog makes necessary for so many
    /// tasks, if that is more.
    pub floor_ucpu: u64,
    pub capacity_ucpu: u64,
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
    pub running: u32,
    pub waiting: u32,
    /// Steps of main that were seen; wraps.
    pub alarms: u32,
    /// Steps of the law.
    pub steps: u64,
    pub longest_ns: u64,
    /// Stretches that side work had at main's cost.
    pub forced: u64,
    /// CPU time that there was.
    pub capacity_ns: u64,
    pub idle_ns: u64,
    pub side_ns: u64,
    /// Time in which main left side work no more than the floor.
    pub floor_ns: u64,
}

impl From<&HeadroomReport> for HeadroomStats {
    fn from(headroom: &HeadroomReport) -> HeadroomStats {
        HeadroomStats {
            reason: Reason::from_number(headroom.reason),
            allowance_ucpu: headroom.allowance_ucpu,
            floor_ucpu: headroom.floor_ucpu,
            capacity_ucpu: headroom.capacity_ucpu,
            asked_ucpu: headroom.asked_ucpu,
            idle_ucpu: headroom.idle_ucpu,
            main_ucpu: headroom.main_ucpu,
            side_ucpu: headroom.side_ucpu,
            trim_ucpu: headroom.trim_ucpu,
            cpus: headroom.cpus,
            running: headroom.running,
            waiting: headroom.waiting,
            alarms: headroom.alarms,
            steps: headroom.steps,
            longest_ns: headroom.longest_ns,
            forced: headroom.forced,
            capacity_ns: headroom.capacity_ns,
            idle_ns: headroom.idle_ns,
            side_ns: headroom.side_ns,
            floor_ns: headroom.floor_ns,
        }
    }
}

/// The controller's state out of its map; None: there has been no side work.
pub fn read(reports: &impl MapCore) -> Result<Option<HeadroomStats>, SchedExtError> {
    let report = get::<HeadroomReport>(reports, &0_u32.to_ne_bytes())?;
    let report = report.filter(|report| report.steps > 0);
    Ok(report.as_ref().map(HeadroomStats::from))
}
