//! The simulated kernel, the engines on it, and the scenarios that are shipped.

#![allow(clippy::unwrap_used, reason = "tests")]

mod engines;
mod fair;
mod kernel;
mod place;
mod quota;
mod scenario;
mod shipped;
mod support;
mod terms;
mod workloads;
