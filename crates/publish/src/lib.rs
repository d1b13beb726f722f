//! How much side CPU a node publishes as an extended resource, when it says so, and when a starved
//! pod must move.
//!
//! A pure function: a [`Rule`] takes what a node sees each second ([`Observation`]) and answers
//! with what to do ([`Step`]). It knows no clock and no API server, so `tidegate-kube` acts by it
//! and `tidegate-lab sim fleet` rehearses it, unchanged.
//!
//! Amounts are millicores: thousandths of one CPU.

mod constants;
mod estimate;
mod eviction;
mod rule;
mod window;

pub use constants::{Assignment, Constants};
pub use rule::{Because, Observation, Rule, Step, Write};

/// The finest amount that is published.
pub const GRAIN_MILLI: u64 = 100;
