//! The law for the BPF target: it builds, and in the kernel it computes the native results.

#![allow(clippy::unwrap_used, reason = "tests")]

mod builds;
mod run;
