//! Rate caps: how exact, how smooth and at what cost; how soon soft caps yield.

pub mod host;
mod host_cells;
mod host_report;
pub mod sim;
mod sim_cells;
mod sim_report;
pub mod soft;
pub mod tables;
