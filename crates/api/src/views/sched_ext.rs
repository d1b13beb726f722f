//! What is shown of the scheduler of the engine sched_ext.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The scheduler of the engine sched_ext.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct SchedExtView {
    /// It is in force.
    pub on: bool,
    /// Where it is not: `sched_ext off: WHY; reload in N s`.
    pub off: Option<String>,
    /// Why it is not in force.
    pub why: Option<String>,
    /// When it is tried again; none while it is on, and where it is not.
    pub reload_in_seconds: Option<f64>,
    /// For how long it has been in force.
    pub on_seconds: Option<f64>,
    /// Times that it was put in force.
    pub loads: u64,
    /// Times that it ended without our doing.
    pub ends: u64,
    /// The last end: the kernel's number for its kind (`enum scx_exit_kind`; from 1024 on a
    /// failure),
    pub last_kind: Option<u32>,
    /// ... its words for that,
    pub last_reason: Option<String>,
    /// ... what happened in particular,
    pub last_message: Option<String>,
    /// ... the beginning of its dump (the agent's log has all of it),
    pub last_dump: Option<String>,
    /// ... and how long ago.
    pub last_ago_seconds: Option<f64>,
    /// What it could not be told.
    pub update_error: Option<String>,
    /// While it is in force, what became of all quotas since it was loaded.
    pub quotas: Option<QuotaCounts>,
}

/// What became of quotas, added up over groups.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct QuotaCounts {
    /// Groups that have or had one.
    pub groups: u64,
    /// Periods in which a group wanted to run.
    pub periods: u64,
    /// Of them, those at whose end it was throttled.
    pub throttled: u64,
    /// How long CPUs were throttled.
    pub throttled_seconds: f64,
    /// Periods in which more than the quota was used.
    pub bursts: u64,
}
