//! The agent process, its guardian and the socket between them and everyone else.
//!
//! One process per machine, the *agent*, runs the control loop and holds the gates. It is started by a service manager or by
//! the first `run` or `set`, and then leaves with the last gate. Beside it stands a *guardian*, a second process that
//! writes the fallback when the agent dies or falls silent. Everyone else speaks to the agent over a socket.
//!
//! ```text
//! server (socket) ─┐
//! house (1 s)     ─┼─▶ agent: gates ─▶ limits: groups, books ─▶ kernel files
//! bursts (0.1 s)  ─┤
//! holders (20 ms) ─┤
//! ext (0.1 s)     ─┤
//! looper (5 ms)   ─┴─▶ control (knobs): sample → law → plan ─▶ quota
//!                        └─ lease ─▶ guardian ─▶ fallback
//! ```

mod adopt;
mod again;
pub mod api;
mod books;
mod bursts;
pub mod client;
mod domains;
mod escape;
mod explain;
pub mod ext;
mod fallback;
mod foreign;
mod gate;
pub mod guardian;
mod holders;
mod house;
mod lease;
mod leaving;
mod light;
mod limits;
mod looper;
mod mechanisms;
mod nesting;
mod notify;
pub mod agent;
pub mod paths;
pub mod peer;
mod presence;
mod program;
mod rate;
mod reassert;
mod rota;
mod server;
mod space;
pub mod startup;
pub mod systemd;
mod targets;
#[cfg(test)]
mod tests;
mod tighten;
mod views;
mod writer;

pub use fallback::{After, repair};
