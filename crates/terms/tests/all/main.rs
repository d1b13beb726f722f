//! Terms from files, and how those of several gates combine.

#![allow(clippy::unwrap_used, reason = "tests")]

mod combine;
mod config;
mod reference;
