//! The agent process, its guardian and the socket between them and everyone else.
//!
//! One process per machine, the *agent*, runs the control loop and holds the gates. It is started
//! by a service manager or by the first `run` or `set`, and then leaves with the last gate. Beside
//! it stands a *guardian*, a second process that writes the fallback when the agent dies or falls
//! silent. Everyone else speaks to the agent over a socket.
//!
//! ```text
//! server ─▶ api, view ────────┐            ┌─▶ systemd ─▶ units' values
//! threads: housekeeping ──────┼─▶ runtime ─┼─▶ kernel (groups, journal) ─▶ kernel files
//!   slow-work, lock-boost ────┘   gates    └─▶ sched_ext ─▶ scheduler
//!   control_thread 5 ms ─▶ control (cgroup): sample → law → plan ─▶ apply (cgroup) ─▶ quota
//!     └─ lease ─▶ guardian ─▶ fallback
//! ```
//!
//! Imports go one way: `process`, `gates` ← `kernel`, `control_loop` ← `systemd`, `sched_ext` ←
//! `runtime` ← `lifecycle`, `view`, `agent` ← `api` ← `server`, `threads` ← `startup`.

pub mod agent;
mod api;
pub mod client;
mod control_loop;
mod errors;
mod events;
mod follow_units;
#[doc(hidden)]
pub mod fuzz;
mod gates;
mod history;
mod kept_policy;
mod kernel;
mod lifecycle;
pub mod loopback;
pub mod metrics;
pub mod paths;
pub mod peer;
mod policy;
mod process;
mod recorder;
mod recorder_state;
mod runtime;
pub mod sched_ext;
mod server;
pub mod startup;
pub mod systemd;
#[cfg(test)]
mod tests;
mod threads;
mod view;

pub use errors::MachineError;
pub use lifecycle::guardian;
pub use lifecycle::repair::{After, RepairError, has_records, is_handed_over, repair};
pub use policy::rehearse::diff_without_agent;
pub use process::begin::join_host_cgroups;
pub use view::main_cpus_advice;
