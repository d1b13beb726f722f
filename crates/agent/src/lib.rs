//! The agent process, its guardian and the socket between them and everyone else.
//!
//! One process per machine, the *agent*, runs the control loop and holds the gates. It is started by a service manager or by
//! the first `run` or `set`, and then leaves with the last gate. Beside it stands a *guardian*, a second process that
//! writes the fallback when the agent dies or falls silent. Everyone else speaks to the agent over a socket.
//!
//! ```text
//! server (socket)       ─┐
//! housekeeping (1 s)    ─┼─▶ agent: gates ─▶ limits: groups, journal ─▶ kernel files
//! bursts (0.1 s)        ─┤
//! lock_boost (20 ms)    ─┤
//! ext (0.1 s)           ─┤
//! control_thread (5 ms) ─┴─▶ control (knobs): sample → law → plan ─▶ quota
//!                             └─ lease ─▶ guardian ─▶ fallback
//! ```

mod adopt;
pub mod agent;
mod bursts;
pub mod client;
mod confinement;
mod control_thread;
mod cpuset_controller;
mod domains;
mod explain;
pub mod ext;
mod fallback;
mod foreign;
mod gate;
pub mod guardian;
mod housekeeping;
mod idle_class;
mod journal;
mod lease;
mod leaving;
mod limits;
mod liveness;
mod lock_boost;
mod mechanisms;
mod notify;
pub mod paths;
pub mod peer;
mod privilege;
mod program;
mod quota_tree;
mod rate;
mod reassert;
mod retry;
mod round_robin;
mod server;
pub mod startup;
pub mod systemd;
mod targets;
#[cfg(test)]
mod tests;
mod views;
mod writer;

pub use fallback::{After, repair};
