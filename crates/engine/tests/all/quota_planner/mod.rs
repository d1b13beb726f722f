//! The planner in closed loop with a model of the kernel's bandwidth control.
//!
//! Hogs on every CPU want all they can get; main is an open-loop server of 1 ms requests that
//! always wins. `kernel.rs` is the kernel (checked against measurements in `facts.rs`), `server.rs`
//! main, `bed.rs` the loop. `contract.rs` holds the promises; `cargo test -p tidegate-engine --test
//! all quota_planner -- --nocapture` prints the figures of law/headroom.md.

mod bed;
mod contract;
mod facts;
mod kernel;
mod rules;
mod server;
