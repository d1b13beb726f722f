//! Tidegate's engines and other people's laws on the simulated machine: the contract of the headroom law, steps, quotas, caps,
//! hints, and that side work never starves. `cargo test -p tidegate-sim --test engines -- --nocapture` prints the figures.

#![allow(missing_docs, clippy::unwrap_used)]

mod bed;
mod caps;
mod contract;
mod domains;
mod others;
mod quotas;
mod shares;
