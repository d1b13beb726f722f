//! The sum behind a gate's rate.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One line of the sum.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SumLineView {
    /// What is counted, after the sign with which it counts: `- headroom`, `= side work may use`. Spaces begin what does not count:
    /// a part of the line before, or a limit beside the sum.
    pub what: String,
    /// How much.
    pub cpus: f64,
    /// Where it comes from.
    pub why: String,
}

impl SumLineView {
    pub fn new(what: impl Into<String>, cpus: f64, why: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            cpus,
            why: why.into(),
        }
    }
}

impl fmt::Display for SumLineView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, cpus, why } = self;
        write!(f, "{what:<26}{cpus:>8.2} CPUs  {why}")
    }
}
