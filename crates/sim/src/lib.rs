//! A deterministic machine: same scenario and seed, same bytes out.

pub mod config;
pub mod contention;
pub mod cpuset;
pub mod error;
pub mod hist;
pub mod ids;
pub mod policies;
pub mod prng;
pub mod program;
pub mod spec;
pub mod topology;
pub mod trace;

pub use config::{CfsConfig, Costs, EevdfConfig, ExtConfig, MachineConfig, Scheduler};
pub use contention::Contention;
pub use cpuset::CpuSet;
pub use error::{SimError, Violation};
pub use hist::Histogram;
pub use ids::{CpuId, GroupId, LockId, PipeId, QueueId, SeriesId, TaskId};
pub use prng::Prng;
pub use program::{Ctx, Op, Program};
pub use spec::{Bandwidth, CapScope, CapTerms, Class, GroupSpec, Policy, TaskSpec};
pub use topology::Topology;
pub use trace::{Event, Knob, Tracer};

/// Simulated time and CPU time, in nanoseconds.
pub type Ns = u64;
