//! What others do about the CPU of processes and groups, written anew from what they publish: the arms that an experiment
//! on this machine has beside Tidegate's. (Laws for headroom are in `tidegate_sim::policies`: the simulator runs them too.)

pub mod cpuburst;
pub mod cpulimit;

pub use cpuburst::{CpuBurst, Look};
