//! `tidegate-kube` against a real control plane: `make kube` builds one and runs these.
//!
//! The nodes have no machine: [`bed`] starts them with the control plane, and [`agent`] answers for
//! their agents.

mod admission;
mod agent;
mod bed;
mod chart;
mod control;
mod cost;
mod diary;
mod gates;
mod machine;
mod node;
mod publishing;
mod scale;
mod versions;
