//! What side work gets and what stays idle while main uses next to nothing, and while it holds 30…80 % of the machine, against
//! the table of the cpu.headroom patches; and the worst second while main varies.
//!
//! The contract: with constant main, idle is within one point of what was asked, or of what main and the tolerance leave where
//! that is less. With varying main, idle over any second is not more than one point below that.

pub mod host;
pub mod patterns;
mod report;
pub mod rows;
pub mod sim;
