//! What the agent shows: `status` and `explain`.

mod explain;
pub(crate) mod figures;
mod gates;
mod main_cpus;
mod status;

pub(crate) use explain::explain;
pub(crate) use gates::{Detail, gate_named};
pub use main_cpus::advice as main_cpus_advice;
pub use status::SharedStatus;
pub(crate) use status::status;
