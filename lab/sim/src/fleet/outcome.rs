//! What came of a rehearsal.

use serde::Serialize;

/// Sums over all nodes and the whole time, under one rule. CPU is in core-seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    pub rule: &'static str,
    pub nodes: u64,
    /// The time that passed.
    pub seconds: u64,
    /// What the law left to side work.
    pub surplus_core_seconds: f64,
    pub side_core_seconds: f64,
    /// Of that, work that was lost when a pod had to move.
    pub lost_core_seconds: f64,
    /// Of that, what side pods used of main's headroom: the tolerance.
    pub in_headroom_core_seconds: f64,
    /// Published and not there.
    pub over_core_seconds: f64,
    /// There and not published.
    pub under_core_seconds: f64,
    /// Writes of nodes' statuses.
    pub writes: u64,
    /// Pods that ended with their work done.
    pub pods_done: u64,
    /// Pods that the rule told to move.
    pub evictions: u64,
    /// Pods that kubelet rejected when it started again, since less stood than they request.
    pub rejections: u64,
    /// Time of pods that had less than 60 % of their request.
    pub starved_pod_seconds: u64,
    /// Time of nodes at which less stood than was bound.
    pub below_bound_node_seconds: u64,
}
