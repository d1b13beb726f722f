//! Tables and plots that the reports of the host, of the bed and of the simulator have in common: the same idea is read
//! in the same columns wherever it was measured.

pub mod burst;
pub mod caps;
pub mod latency;
