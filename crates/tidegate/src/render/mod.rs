//! Answers for people: plain text under 80 columns, with colour only where it goes to a terminal.

pub mod events;
pub mod explain;
pub mod gates;
pub mod policy;
pub mod status;
#[cfg(test)]
mod tests;

pub use tidegate_api::cli::{
    BAD, BOLD, GOOD, WIDTH, count, cpus, fit, json, print, span, styled, wrapped,
};
