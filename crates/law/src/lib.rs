//! The arithmetic of Tidegate's mechanisms: a safe face of `law/*.h`.
//!
//! The law itself is C (one header an idea, integers only), because the same
//! text is compiled into BPF programs. This crate compiles it natively and
//! gives it Rust types: [`Headroom`] decides how much CPU side work may use,
//! [`share`] splits an allowance over several targets. Both are pure: time
//! comes in with the sample, nothing is read or written elsewhere.
//! `law/README.md` states the formulas, their bounds and the tuning.

mod ffi;
mod headroom;
mod share;

pub use headroom::{
    Headroom, HeadroomConfig, HeadroomDecision, HeadroomSample, HeadroomTerms, Reason,
};
pub use share::{Demand, SHARE_MAX, WEIGHT_MAX, share};
