//! A deterministic machine: same scenario and seed, same bytes out.

pub mod hist;
pub mod prng;
