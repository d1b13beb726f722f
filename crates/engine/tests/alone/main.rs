//! What measures the machine that it runs on: a program of its own, so that no other test runs
//! beside it.

#![allow(clippy::unwrap_used, reason = "tests")]

mod bed;
mod sense;
