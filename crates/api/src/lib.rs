//! What travels over the agent's socket, and what the command ends with: the types that the agent, the command and others share.

mod error;
mod exit;

pub use error::{ApiError, ErrorKind, PROBLEM_JSON};
pub use exit::Exit;
