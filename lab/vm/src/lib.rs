//! The VM bed: boots a stock Debian kernel under software emulation, with cgroup v2 as a
//! distribution leaves it, and runs there either the repository's tests ([`Suite`] over
//! [`catalog`]) or one command with a folder of results ([`Job`]). docs/vm.md tells how to use it
//! and how far its figures can be trusted.

mod apt;
mod bed;
mod boot;
pub mod catalog;
mod command;
mod cpio;
mod emulator;
mod error;
pub mod fetch;
mod image;
mod job;
mod progress;
mod protocol;
mod setup;
mod suite;
pub mod userland;

pub use bed::Bed;
pub use catalog::{Case, Mode};
pub use error::{VmError, tool};
pub use fetch::Kernel;
pub use job::{Done, Job};
pub use progress::Progress;
pub use protocol::Outcome;
pub use setup::{Setup, cache};
pub use suite::{Suite, Tally};
