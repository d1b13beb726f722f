//! The arithmetic of the law: examples, properties and walks of every state of small machines.
//! `cargo test -p tidegate-law --test all headroom` runs those of one header.

#![allow(clippy::unwrap_used, reason = "tests")]

mod bandwidth;
mod cap;
mod cap_fill;
mod cap_join;
mod cap_walk;
mod cap_walk_tasks;
mod cap_walk_terms;
mod contract;
mod delay;
mod delay_walk;
mod headroom;
mod headroom_contend;
mod headroom_steps;
mod headroom_trim;
mod headroom_walk;
mod hweight;
mod latency;
mod runqueue;
mod share;
mod side_cpus;
mod support;
