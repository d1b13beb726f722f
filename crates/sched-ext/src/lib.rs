//! The engine on sched_ext: Tidegate's own scheduler in BPF (`bpf/`), and what loads it.
//!
//! [`SchedExt::prepare`] has the kernel check it and [`SchedExt::attach`] puts all ordinary tasks
//! of the machine under it ("full mode"); dropping the value gives them back to the kernel's own
//! scheduler, and so does the kernel itself when the process dies or the scheduler fails.
//! docs/sched-ext.md tells how it decides.
//!
//! 1. **The kernel is asked, not guessed at.** [`support()`] looks for sched_ext; structures and
//!    constants come from the running kernel's BTF, so that one object serves every kernel from
//!    6.12.
//! 2. **Loaded means loaded.** [`SchedExt::attach`] returns once the kernel says `enabled`;
//!    [`SchedExt::ended`] says why it is no more.
//! 3. **Engines do not know each other.** Topology, gates and idle groups come in from outside.

mod accounts;
mod caps;
mod cost;
mod delays;
mod error;
mod exit;
mod floors;
mod headroom;
mod hints;
mod intf;
mod limits;
mod load;
mod log;
mod machine;
mod object;
mod rcu;
mod stats;
mod support;
mod terms;

pub use accounts::WorkStat;
pub use caps::CapStat;
pub use cost::{CountedCost, ProgramCost, count_cost};
pub use delays::Delays;
pub use error::SchedExtError;
pub use exit::SchedulerEnd;
pub use floors::{SIDE_TASK_UCPU, WAITING_TASK_UCPU};
pub use intf::CAPS_NESTED_MAX;
pub use limits::LimitStat;
pub use load::{Options, SchedExt, verify};
pub use machine::{CpuPlace, Machine};
pub use object::kernel_tells_quotas;
pub use rcu::restore_rcu_thread;
pub use stats::{CpuStats, GateStat, Stats};
pub use support::{NAME, Support, support};
pub use terms::{CapScope, CapTerms, GateTerms, Kind};
