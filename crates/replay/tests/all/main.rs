//! Recordings made from simulated runs, whose demand is known, through a replay.

#![allow(clippy::unwrap_used, reason = "tests")]

mod known;
mod policies;
mod support;
mod tune;
