//! Kernel files for tests: [`FakeFs`] is a cgroup v1 or v2 tree in memory with the kernel's own
//! refusals, and [`FaultFs`] wraps it, or the machine, and makes chosen operations fail.

mod fake;
mod fault;

pub use fake::{FakeFs, FakeProcess, SELF_PID};
pub use fault::{Fault, FaultFs, Meanwhile, Rule};
