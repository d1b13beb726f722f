//! Main's latency at several loads, with side work placed in several ways. Every arm of a comparison meets the same arrivals,
//! and is compared with *no side work* of the same load and round.

pub mod bench;
pub mod host;
mod host_report;
pub mod players;
pub mod report;
pub mod sim;
pub mod sim_cells;
mod sim_report;

use crate::LabError;

/// Load level 1.0 in percent of the machine.
pub const LEVEL_ONE_PCT: f64 = 25.0;

/// Load levels that a machine can be given.
///
/// # Errors
/// One is outside 0.04 to `most`.
pub fn check_loads(loads: &[f64], most: f64) -> Result<(), LabError> {
    match loads.iter().find(|load| !(0.04..=most).contains(*load)) {
        None => Ok(()),
        Some(bad) => Err(LabError::Asked {
            what: format!("load level {bad}"),
            why: "1.0 is 25 % of the machine".into(),
            mend: format!("give levels from 0.04 to {most}"),
        }),
    }
}
