//! Main steps from 10 to 80 % of the machine and back: how soon side's CPU follows, under Tidegate's engines and under the
//! published laws. Each step comes at a random moment, so no controller's period is favoured; both beds judge a trace of side's
//! CPU time alike ([`super::settle`]).

pub mod host;
mod report;
pub mod sim;

/// Main before and after.
pub const LOW_PCT: f64 = 10.0;
/// Main at its height.
pub const HIGH_PCT: f64 = 80.0;
