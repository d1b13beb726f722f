//! Tidegate's engines and other people's laws on the simulated machine: the contract of the
//! headroom law, steps, quotas, caps, hints, and that side work never starves. `cargo test -p
//! tidegate-sim --test all engines -- --nocapture` prints the figures.

mod bed;
mod contract;
mod measure;
mod others;
