//! Main's latency at several loads, with side work placed in several ways. Every arm of a comparison meets the same arrivals,
//! and is compared with *no side work* of the same load and round.

pub mod bench;
pub mod host;
mod host_report;
pub mod players;
pub mod report;
mod search;
pub mod sim;
pub mod sim_cells;
mod sim_report;

/// Load level 1.0 in percent of the machine.
pub const LEVEL_ONE_PCT: f64 = 25.0;
