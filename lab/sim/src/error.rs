//! What can be wrong with a machine's description, and what a broken
//! invariant looks like.

use crate::Ns;
use crate::ids::{CpuId, GroupId, TaskId};
use crate::topology::TopologyError;
use thiserror::Error;

/// A machine, group or task that cannot be built, or a change that is refused.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SimError {
    /// A number outside its range.
    #[error("{what}: {got}: out of range {low}..={high}; give a value within it")]
    Range {
        what: &'static str,
        got: u64,
        low: u64,
        high: u64,
    },
    /// A machine that cannot be.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A group that was never added.
    #[error("group {0}: no such group; add it with add_group first")]
    NoGroup(GroupId),
    /// A set of CPUs that leaves a task nowhere to run.
    #[error(
        "{what}: the CPUs that it names and those of its group have none in common; name one below {cpus} of its group's"
    )]
    NoCpu { what: String, cpus: u32 },
    /// A change that this kernel refuses.
    #[error("{what}: {why}; {remedy}")]
    Refused {
        what: &'static str,
        why: &'static str,
        remedy: &'static str,
    },
}

/// An invariant of the machine that does not hold: a bug of the simulator, of
/// a law or of a program. It names what reproduces it.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error(
    "invariant {rule}: at {at_ns} ns{}{}: {detail}; reproduce with seed {seed}",
    cpu.map(|c| format!(", CPU {c}")).unwrap_or_default(),
    task.map(|t| format!(", task {t}")).unwrap_or_default()
)]
pub struct Violation {
    pub rule: &'static str,
    pub at_ns: Ns,
    pub cpu: Option<CpuId>,
    pub task: Option<TaskId>,
    pub seed: u64,
    pub detail: String,
}
