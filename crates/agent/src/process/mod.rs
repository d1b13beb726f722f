//! The agent as a process: its life, its lock, the page that it shares with its guardian, and the
//! programs that it starts.

pub(crate) mod agent_lock;
pub mod begin;
pub(crate) mod lease;
mod life;
pub(crate) mod liveness;
pub(crate) mod notify;
pub(crate) mod program;
pub(crate) mod tree_lock;

pub use life::{Life, Mode};
