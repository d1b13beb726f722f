//! Recordings made from simulated runs, whose demand is known, through a replay.

#![allow(clippy::unwrap_used, reason = "tests")]

mod policies;
mod shares;
mod support;
mod tune;
