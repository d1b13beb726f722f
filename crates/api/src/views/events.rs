//! What has happened.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventView {
    /// Its number, from 1 on in each agent.
    pub seq: u64,
    /// When, since 1970.
    pub time_unix_seconds: f64,
    /// What kind: `gate.created`, `gate.ended`, `starvation.began`, `starvation.ended`,
    /// `outside_write`, `lease.expired`, `guardian.replaced`, `agent.adopted`, `sched_ext.loaded`,
    /// `sched_ext.ejected`, `policy.applied`, `policy.rejected`, `policy.confirmed`,
    /// `policy.rolled_back`, `objective.missed`, `objective.met`, `measure.started`, `measure.done`
    /// or `measure.ended`.
    pub kind: String,
    /// The gate, where it is about one.
    pub gate: Option<String>,
    /// In words.
    pub message: String,
}

impl EventView {
    pub fn is_warning(kind: &str) -> bool {
        matches!(
            kind,
            "outside_write"
                | "lease.expired"
                | "guardian.replaced"
                | "sched_ext.ejected"
                | "objective.missed"
        )
    }
}

/// Events after a number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventsView {
    /// The agent's process: another one counts from 1 again.
    pub pid: i32,
    /// How many came after that number and are forgotten.
    pub lost: u64,
    /// Oldest first, at most 1,000.
    pub events: Vec<EventView>,
    /// What to ask after next.
    pub last_seq: u64,
}

/// Of a stream: events that its reader cannot have any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GapView {
    /// How many; absent where the number to resume after is an earlier agent's.
    pub lost: Option<u64>,
    /// The stream goes on with this number.
    pub next_seq: u64,
}
