//! The arithmetic of Tidegate's mechanisms: a safe face of `law/*.h`.
//!
//! The law itself is C (one header an idea, integers only), because the same text is compiled into
//! BPF programs. This crate compiles it natively and gives it Rust types: [`Headroom`] decides how
//! much CPU side work may use, [`share()`] splits an allowance over several targets, [`bandwidth`]
//! meters a group by quota and period, [`cap`] bounds what a task or group uses, [`latency`] orders
//! deadlines. [`hweight`], [`runqueue`], [`side_cpus`] and [`tuning`] are of Tidegate's own
//! scheduler. All are pure: time comes in, nothing is read or written elsewhere. `law/README.md`
//! says where each formula, its bounds and its tuning are told.

#[cfg(not(target_os = "linux"))]
compile_error!("Tidegate needs a Linux kernel: build it on Linux, or in a Linux virtual machine");

pub mod bandwidth;
pub mod cap;
pub mod delay;
mod ffi;
mod headroom;
pub mod hweight;
pub mod latency;
pub mod runqueue;
mod share;
pub mod side_cpus;
pub mod tuning;

pub use headroom::{
    Headroom, HeadroomConfig, HeadroomDecision, HeadroomSample, HeadroomTerms, Reason,
};
pub use share::{Demand, SHARE_MAX, WEIGHT_MAX, share};
