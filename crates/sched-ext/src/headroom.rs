//! The headroom controller's last decision, as its timer published it.

use libbpf_rs::MapCore;
use tidegate_law::{HeadroomDecision, Reason};

use crate::error::SchedExtError;
use crate::intf::HeadroomReport;
use crate::object::get;

/// What side work may use, and why; None: there has been no side work. The floor is the tolerance,
/// or what the watchdog makes necessary for so many tasks, if that is more.
pub fn read(reports: &impl MapCore) -> Result<Option<HeadroomDecision>, SchedExtError> {
    let report = get::<HeadroomReport>(reports, &0_u32.to_ne_bytes())?;
    let report = report.filter(|report| report.steps > 0);
    Ok(report.map(|report| HeadroomDecision {
        reason: Reason::from_number(report.reason),
        allowance_ucpu: report.allowance_ucpu,
        floor_ucpu: report.floor_ucpu,
        capacity_ucpu: report.capacity_ucpu,
        asked_ucpu: report.asked_ucpu,
        main_est_ucpu: report.main_ucpu,
        main_now_ucpu: report.main_ucpu,
        side_ucpu: report.side_ucpu,
        idle_ucpu: report.idle_ucpu,
        alarms: report.alarms,
        ..HeadroomDecision::default()
    }))
}
