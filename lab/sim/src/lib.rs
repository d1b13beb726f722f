//! A deterministic machine: same scenario and seed, same bytes out.

mod check;
pub mod config;
pub mod contention;
pub mod controller;
pub mod cpuset;
pub mod engines;
pub mod error;
mod event;
pub mod fleet;
pub mod hist;
pub mod ids;
mod kernel;
pub mod machine;
pub mod outcome;
pub mod parallel;
pub mod plan;
pub mod policies;
pub mod prng;
pub mod program;
pub mod run;
pub mod scenario;
mod sched;
pub mod spec;
mod state;
pub mod topology;
mod values;
pub mod workloads;

pub use config::{Costs, MachineConfig, base_slice_ns};
pub use contention::Contention;
pub use controller::{Controller, Simulation};
pub use cpuset::CpuSet;
pub use error::{SimError, Violation};
pub use hist::Histogram;
pub use ids::{CpuId, GroupId, PipeId, SeriesId, TaskId};
pub use machine::Machine;
pub use prng::Prng;
pub use program::{Ctx, Op, Program, TaskSpec};
pub use spec::{Bandwidth, Class, CpuStat, GroupSpec, Policy};
pub use topology::Topology;

/// Simulated time and CPU time, in nanoseconds.
pub type Ns = u64;
