//! Tidegate on a Kubernetes node.
//!
//! | module | what it is |
//! |---|---|
//! | [`terms`] | what a pod's annotations and the cluster's policies make of it: a pure function |
//! | [`policy`] | the resource `TidegatePolicy` |
//! | [`resource`] | the resource `tidegate.dev/side-cpu`: what pods request and what a node's status says |
//! | [`groups`] | a pod's cgroup, found by its UID |
//! | [`gates`] | which gates the agent must have for the pods: a pure difference |
//! | [`agent`] | the agent's socket |
//! | [`node`] | the node's status: the key, the condition |
//! | [`daemonset`] | the pods of Tidegate's own DaemonSet |
//! | [`publish`] | the rule's steps, and the writes that it asks for |
//! | [`evict`] | which pod moves, and the Eviction API |
//! | [`follow`] | the node's pods, namespaces and policies as the API server tells of them |
//! | [`control`] | the cluster's controller: stale promises, and the status of policies |
//! | [`tell`] | what is told of a pod: its events |
//! | [`resize`] | which pods kubelet resizes now |
//! | [`ready`] | whether this process does its work, for kubelet's probe |
//! | [`metrics`] | what Prometheus scrapes, for callers that the cluster allows |
//! | [`run`] | all of it, until a signal |

pub mod agent;
pub mod control;
pub mod daemonset;
pub mod evict;
pub mod explain;
pub mod follow;
pub mod gates;
pub mod groups;
pub mod metrics;
pub mod node;
pub mod policy;
pub mod publish;
pub mod ready;
pub mod resize;
pub mod resource;
pub mod run;
pub mod tell;
pub mod terms;

/// Before the names of our annotations, labels and resources.
pub const PREFIX: &str = "tidegate.dev/";
