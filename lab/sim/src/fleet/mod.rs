//! A cluster's days rehearsed: what each node publishes as side CPU, where pods are placed by it,
//! and what becomes of them.
//!
//! Nodes follow main's use of their CPUs ([`days`]), which is generated. Each publishes by a
//! rule ([`rules`]): the one that `tidegate-kube` acts by, or a peer's. Side pods are placed where
//! the published amount has room, do their work with what main leaves, and end. The same settings
//! and seed give the same figures.

mod cluster;
pub mod days;
mod node;
mod outcome;
pub mod rules;

pub use cluster::{Settings, run};
pub use outcome::Outcome;
