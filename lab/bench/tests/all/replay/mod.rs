//! Recordings made from simulated runs, whose demand is known, through a replay.

mod policies;
mod shares;
mod support;
mod tune;
